"""`moera train` from start to end."""

import itertools
import signal
import time
from pathlib import Path

import pytest

from moera.report.traces import connected_services
from tests.runs import Trainer, assert_balanced, assert_steps_once, assert_trained_once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_run_trains_evaluates_reports_and_traces_one_connected_step(trainer: Trainer) -> None:
    run = trainer.start()
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 6)
    assert all(line["values"]["num_samples"] > 0 for line in run.lines("metrics.jsonl"))
    for counts in (line["counts"] for line in run.lines("monitor.jsonl") if line["counts"]):
        assert_balanced(counts)
    headlines = [e for e in run.lines("evals.jsonl") if e["headline"] and e["env_id"] == "all"]
    assert [(e["step"], e["num_tasks"] > 0) for e in headlines] == [(0, True), (6, True)]
    assert_trained_once(run)
    assert connected_services(run.folder, 3) >= {"envs", "rollout", "cache", "learner"}
    assert (run.folder / "report.html").stat().st_size > 100_000
    assert (run.folder / "trace.html").stat().st_size > 10_000
    assert "held-out success" in run.output.read_text()


def test_two_rollout_servers_share_the_work(trainer: Trainer) -> None:
    run = trainer.start("--local.num_rollouts", "2", "--learner.evaluation.every", "3")
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 6)
    assert_trained_once(run)
    assert [e["step"] for e in run.lines("evals.jsonl") if e["env_id"] == "all"] == [0, 3, 6]
    for name in ("rollout-0", "rollout-1"):
        log = (run.folder / "logs" / f"{name}.log").read_text()
        assert "serving version 1.5" in log
        assert "drained" in log


def test_ctrl_c_stops_every_process_within_10_seconds_and_resume_finishes(
    trainer: Trainer,
) -> None:
    run = trainer.start()
    run.until(lambda: len(run.steps()) >= 3, 120)
    pids = [entry["pid"] for entry in run.processes().values()]
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.wait(15) == 130, run.tail()
    assert time.monotonic() - began < 10
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert "--resume small" in run.output.read_text()
    resumed = trainer.resume()
    assert resumed.wait(200) == 0, resumed.tail()
    assert_steps_once(resumed, 6)
    assert_balanced(resumed.counts())
    epochs = [int(line["version"].split(".")[0]) for line in resumed.lines("evals.jsonl")]
    assert all(first <= second for first, second in itertools.pairwise(epochs))
