"""A running system from the outside: health, status, control, generation, watching."""

import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from moera import config
from moera.rpc import LIVE
from moera.v1 import learner_pb2, learner_pb2_grpc
from tests.runs import ROOT, Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def moera(*arguments: str) -> str:
    """Run the command to its end; returns what it printed."""
    command = [sys.executable, "-m", "moera.cli", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def health(address: str, service: str) -> "health_pb2.HealthCheckResponse.ServingStatus":
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status


def test_operators_see_and_steer_a_run(trainer: Trainer) -> None:
    run = trainer.start("--learner.num_steps", "300", "--learner.checkpoint.every", "1000")
    run.until(lambda: len(run.steps()) >= 2, 120)
    addresses = config.load_files(config.ServiceConfig, [run.folder / "local.toml"]).addresses
    everyone = [addresses.cache, addresses.envs, addresses.learner, *addresses.rollouts]
    serving = health_pb2.HealthCheckResponse.SERVING
    assert [health(each, LIVE) for each in everyone] == [serving] * 4
    assert [health(each, "") for each in everyone] == [serving] * 4

    with grpc.insecure_channel(addresses.learner) as channel:
        learner = learner_pb2_grpc.LearnerServiceStub(channel)
        paused = learner.Pause(learner_pb2.PauseRequest(), timeout=30).step
        saved = learner.SaveCheckpoint(learner_pb2.SaveCheckpointRequest(), timeout=30)
        status = learner.GetLearnerStatus(learner_pb2.GetLearnerStatusRequest(), timeout=5)
        assert (saved.step, status.version.step, status.checkpoint_step) == (paused,) * 3
        assert status.phase == learner_pb2.LEARNER_PHASE_PAUSED
        name = f"objects/checkpoints/{paused:08d}/state.json"
        assert (run.folder / name).is_file()
        assert saved.uri.endswith(f"/checkpoints/{paused:08d}")
        metrics = learner.GetMetrics(learner_pb2.GetMetricsRequest(after_step=1), timeout=5)
        assert [each.step for each in metrics.steps] == list(range(2, paused + 1))
        learner.Resume(learner_pb2.ResumeRequest(), timeout=5)
    run.until(lambda: run.steps()[-1] > paused, 60)

    shown = moera("status", str(run.folder))
    assert f"{run.steps()[-1]}/300" in shown or "/300" in shown
    arguments = ("--server", addresses.rollouts[0], "--max-tokens", "8", "--seed", "1")
    first, again = (moera("generate", *arguments, "2 + 2 =") for _ in range(2))
    assert first.strip()
    assert first == again
    assert "reward" in moera("samples", str(run.folder), "-n", "1")
    page = run.folder / "early.html"
    moera("report", str(run.folder), "--out", str(page))
    assert page.stat().st_size > 100_000


def test_attaching_only_watches(trainer: Trainer) -> None:
    run = trainer.start()
    run.until(lambda: len(run.steps()) >= 1, 120)
    pids = {name: entry["pid"] for name, entry in run.processes().items()}
    command = [sys.executable, "-m", "moera.cli", "train", "--attach"]
    watcher = subprocess.Popen(
        [*command, str(run.folder / "local.toml")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    run.until(lambda: len(run.steps()) >= 4, 60)
    watcher.terminate()
    text, _ = watcher.communicate(timeout=20)
    assert "step" in text
    assert {name: entry["pid"] for name, entry in run.processes().items()} == pids
    assert run.wait(120) == 0
