"""What is wrong is named, with what to change, and nothing hangs."""

import socket
from pathlib import Path

import pytest

from tests.conftest import free_port, start_redis
from tests.runs import ROOT, Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

FLAKY = """
[run]
name = "flaky"
[model]
path = "{model}"
[[environment]]
id = "flaky"
entry = "tests.e2e.environments:Flaky"
params = {params}
[learner.sampling]
max_new_tokens = 16
[learner.evaluation]
num_tasks = 0
"""


def flaky(folder: Path, params: str) -> Path:
    file = folder / "flaky.toml"
    text = FLAKY.format(model=ROOT / "examples/quickstart/model", params=params)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--learner.num_stepz", "3"), "did you mean 'num_steps'"),
        (("--model.path", "nowhere/at/all"), "does not exist"),
        (("--learner.group_size", "1"), "greater than or equal to 2"),
        (("--run.id", "../escape"), "run.id"),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_starts(
    trainer: Trainer, arguments: tuple[str, str], message: str
) -> None:
    run = trainer.start(*arguments)
    assert run.wait(30) == 2
    assert message in run.output.read_text()
    assert not run.processes()


def test_a_port_in_use_ends_the_run_and_names_the_port(trainer: Trainer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run = trainer.start("--learner.listen", address)
        assert run.wait(60) != 0
    assert f"cannot listen on {address}" in run.output.read_text()


def test_a_redis_that_may_drop_experience_is_refused(trainer: Trainer, tmp_path: Path) -> None:
    port = free_port()
    policy = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    server = start_redis(tmp_path / "redis", port, *policy)
    try:
        run = trainer.start("--cache.redis_url", f"redis://127.0.0.1:{port}/0")
        assert run.wait(60) != 0
    finally:
        server.kill()
        server.wait()
    assert "maxmemory-policy allkeys-lru, which may drop experience" in run.output.read_text()


def test_an_environment_that_breaks_now_and_then_costs_its_samples_and_nothing_else(
    trainer: Trainer, tmp_path: Path
) -> None:
    run = trainer.start("--cache.max_attempts", "2", config=flaky(tmp_path, "{}"))
    assert run.wait(120) == 0, run.tail()
    assert run.steps() == [1, 2, 3, 4, 5, 6]
    counts = run.counts()
    assert counts["failed"] > 0
    assert counts["failed"] % 4 == 0  # tasks break, so whole groups of four do
    assert counts["enqueued"] == sum(value for name, value in counts.items() if name != "enqueued")
    assert "the dice are lost" in (run.folder / "logs/rollout-0.log").read_text()
    assert all(0 <= line["values"]["reward_mean"] <= 1 for line in run.lines("metrics.jsonl"))


@pytest.mark.parametrize(
    ("how", "message"),
    [("raise", "the dice are lost"), ("nan", "reward is nan"), ("observation", "a str or a list")],
)
def test_an_environment_that_always_breaks_ends_the_run_with_its_reason(
    trainer: Trainer, tmp_path: Path, how: str, message: str
) -> None:
    file = flaky(tmp_path, f'{{ always = "{how}" }}')
    run = trainer.start("--cache.max_attempts", "2", config=file)
    assert run.wait(120) != 0
    text = run.output.read_text()
    assert "samples failed while one batch was awaited" in text
    assert message in text
