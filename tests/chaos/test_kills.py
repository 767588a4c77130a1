"""kill -9 of every process of a run, in the middle of training."""

import time
from pathlib import Path

import pytest

from tests.runs import (
    Trainer,
    assert_balanced,
    assert_steps_once,
    assert_trained_once,
    assignments,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_rollout_cache_envs_and_redis_may_die_and_the_run_goes_on_to_its_end(
    trainer: Trainer,
) -> None:
    run = trainer.start("--learner.num_steps", "8", "--rollout.lease_ttl_s", "5")
    for step, name in ((1, "rollout-0"), (2, "cache"), (3, "envs"), (4, "redis")):
        run.until(lambda step=step: len(run.steps()) >= step, 120)
        before = run.kill(name)
        run.until(lambda name=name, before=before: run.processes()[name]["pid"] != before, 20)
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 8)
    assert_balanced(run.counts())
    assert_trained_once(run)


def test_a_killed_learner_restores_its_checkpoint_and_gets_the_same_batches(
    trainer: Trainer,
) -> None:
    run = trainer.start()
    run.until(lambda: len(run.steps()) >= 3, 120)
    before = assignments(run)
    run.kill("learner")
    assert run.wait(200) == 0, run.tail()
    assert_steps_once(run, 6)
    assert before.items() <= assignments(run).items()
    assert len(before) >= 3
    assert_balanced(run.counts())
    assert_trained_once(run)


def test_a_run_whose_supervisor_was_killed_resumes_with_the_same_batches(
    trainer: Trainer,
) -> None:
    run = trainer.start()
    run.until(lambda: len(run.steps()) >= 3, 120)
    pids = [entry["pid"] for entry in run.processes().values()]
    before = assignments(run)
    run.process.kill()
    run.process.wait()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "a service outlived its supervisor"
        time.sleep(0.1)
    resumed = trainer.resume()
    assert resumed.wait(200) == 0, resumed.tail()
    assert_steps_once(resumed, 6)
    assert_balanced(resumed.counts())
    assert before.items() <= assignments(resumed).items()
    assert_trained_once(resumed)
