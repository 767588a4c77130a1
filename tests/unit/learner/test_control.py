import asyncio
from pathlib import Path

import pytest

from moera import jsonl
from moera.errors import FailedPreconditionError
from moera.v1 import cache_pb2, common_pb2, learner_pb2
from moera.wire import Version
from services.learner.control import Control
from services.learner.evaluation import result
from services.learner.journal import Journal
from tests import tiny
from tests.unit.learner.made import trajectory


async def no_checkpoint() -> str:
    raise AssertionError("nobody asked for a checkpoint")


async def test_pause_stands_between_two_steps_and_resume_goes_on():
    control = Control()
    await control.between_steps(no_checkpoint)
    pausing = asyncio.create_task(control.pause())
    await asyncio.sleep(0)
    loop = asyncio.create_task(control.between_steps(no_checkpoint))
    assert await pausing == 0
    assert control.phase == learner_pb2.LEARNER_PHASE_PAUSED
    assert not loop.done()
    control.resume()
    await asyncio.wait_for(loop, 1)


async def test_a_checkpoint_can_be_asked_for_while_paused():
    control = Control()
    control.reached(Version(1, 7), None, {})

    async def save() -> str:
        return "file:///there"

    pausing = asyncio.create_task(control.pause())
    await asyncio.sleep(0)
    loop = asyncio.create_task(control.between_steps(save))
    await pausing
    assert await asyncio.wait_for(control.save_checkpoint(), 1) == (7, "file:///there")
    assert not loop.done()
    loop.cancel()


async def test_a_finished_learner_refuses_to_pause():
    control = Control()
    control.close()
    with pytest.raises(FailedPreconditionError, match="all steps are done"):
        await control.pause()


def test_failures_are_counted_and_are_no_reward_of_zero():
    failure = common_pb2.Failure(kind=common_pb2.FAILURE_KIND_TIMEOUT)
    summaries = [
        cache_pb2.SampleSummary(reward=1.0, num_policy_tokens=10),
        cache_pb2.SampleSummary(reward=0.0, num_policy_tokens=20),
        cache_pb2.SampleSummary(failure=failure),
    ]
    assert result(summaries, 1.0) == {
        "num_tasks": 3,
        "failures": 1,
        "success_rate": 0.5,
        "reward_mean": 0.5,
        "response_tokens_mean": 15,
    }


def test_a_restored_journal_forgets_the_steps_that_happen_again(tmp_path: Path):
    tokenizer = tiny.tokenizer()
    journal = Journal(tmp_path, 0, tokenizer)
    for step in (1, 2, 3):
        journal.step(step, f"1.{step}", {"loss": float(step), "kl": float("nan")}, [[0.5, 0.5]])
        journal.samples(step, [trajectory(f"g{step}/{i}", 4, 3, float(i)) for i in range(3)])
    journal.evaluation([{"step": 3, "env_id": "all", "success_rate": 1.0, "reward_mean": 1.0}])
    journal.close()
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 4, "val')  # killed in the middle of a line
    again = Journal(tmp_path, 2, tokenizer)
    assert sorted(again.steps) == [1, 2]
    assert again.steps[2] == {"loss": 2.0}
    assert not again.has_evaluation(3)
    samples = jsonl.read(tmp_path / "samples.jsonl")
    assert [(line["step"], line["reward"]) for line in samples] == [
        (1, 2.0),
        (1, 0.0),
        (2, 2.0),
        (2, 0.0),
    ]
    segments = samples[0]["sequences"][0]
    assert [(each["source"], each["trained"]) for each in segments] == [
        ("prompt", False),
        ("policy", True),
    ]
    again.close()
