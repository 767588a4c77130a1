"""`moera train` from start to end, and through every kind of death."""

import itertools
import json
import signal
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TERMINAL = ("trained", "evicted", "dropped", "failed")
OPEN = ("pending", "leased", "committed", "ready", "assigned")


def assert_balanced(counts: dict[str, int]) -> None:
    assert counts["enqueued"] == sum(counts[name] for name in TERMINAL + OPEN), counts


def assert_steps_once(run, num_steps: int) -> None:
    assert run.steps() == list(range(1, num_steps + 1))


def trained_ids(folder: Path, up_to: int) -> list[str]:
    """Return the sample ids of the batches of all steps, as the object store has them."""
    from moera.v1 import cache_pb2

    ids = []
    for file in sorted((folder / "objects" / "assignments").glob("*")):
        if int(file.name) <= up_to:
            batch = cache_pb2.TakeBatchResponse.FromString(file.read_bytes())
            ids += [sample.sample_id for group in batch.groups for sample in group.samples]
    return ids


def test_a_run_trains_evaluates_reports_and_traces_one_connected_step(trainer) -> None:
    from moera.report.traces import connected_services

    run = trainer.start()
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 6)
    assert all(line["values"]["num_samples"] > 0 for line in run.lines("metrics.jsonl"))
    for counts in (line["counts"] for line in run.lines("monitor.jsonl") if line["counts"]):
        assert_balanced(counts)
    headlines = [e for e in run.lines("evals.jsonl") if e["headline"] and e["env_id"] == "all"]
    assert [(e["step"], e["num_tasks"] > 0) for e in headlines] == [(0, True), (6, True)]
    ids = trained_ids(run.folder, 6)
    assert len(ids) == len(set(ids)) > 0
    assert connected_services(run.folder, 3) >= {"envs", "rollout", "cache", "learner"}
    assert (run.folder / "report.html").stat().st_size > 100_000
    assert (run.folder / "trace.html").stat().st_size > 10_000
    assert "held-out success" in run.output.read_text()


def test_kill_9_of_rollout_cache_and_envs_does_not_stop_or_unbalance_a_run(trainer) -> None:
    run = trainer.start("--learner.num_steps", "8", "--rollout.lease_ttl_s", "5")
    for step, name in ((1, "rollout-0"), (2, "cache"), (3, "envs"), (4, "redis")):
        run.until(lambda step=step: len(run.steps()) >= step, 120)
        before = run.kill(name)
        run.until(lambda name=name, before=before: run.processes()[name]["pid"] != before, 20)
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 8)
    assert_balanced(run.counts())
    ids = trained_ids(run.folder, 8)
    assert len(ids) == len(set(ids))


def test_a_killed_learner_restores_its_checkpoint_and_gets_the_same_batches(trainer) -> None:
    run = trainer.start()
    run.until(lambda: len(run.steps()) >= 3, 120)
    before = {
        file.name: file.read_bytes() for file in (run.folder / "objects/assignments").glob("*")
    }
    run.kill("learner")
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 6)
    assert before
    for name, batch in before.items():
        assert (run.folder / "objects/assignments" / name).read_bytes() == batch
    ids = trained_ids(run.folder, 6)
    assert len(ids) == len(set(ids))


def test_ctrl_c_stops_every_process_within_10_seconds_and_resume_finishes(trainer) -> None:
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
    epochs = [json.loads(line["version"].split(".")[0]) for line in resumed.lines("evals.jsonl")]
    assert all(first <= second for first, second in itertools.pairwise(epochs))


def test_a_run_whose_supervisor_was_killed_resumes_with_the_same_batches(trainer) -> None:
    run = trainer.start()
    run.until(lambda: len(run.steps()) >= 3, 120)
    pids = [entry["pid"] for entry in run.processes().values()]
    run.process.kill()
    run.process.wait()
    folder = run.folder / "objects/assignments"
    before = {file.name: file.read_bytes() for file in folder.glob("*")}
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "a service outlived its supervisor"
        time.sleep(0.1)
    resumed = trainer.resume()
    assert resumed.wait(200) == 0, resumed.tail()
    assert_steps_once(resumed, 6)
    assert_balanced(resumed.counts())
    assert before
    for name, batch in before.items():
        assert (folder / name).read_bytes() == batch
    ids = trained_ids(run.folder, 6)
    assert len(ids) == len(set(ids))
