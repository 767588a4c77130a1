import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moera import rpc
from moera.v1 import common_pb2, envs_pb2, envs_pb2_grpc
from moera.wire import message_text, text_message
from tests.contract.conftest import ask

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "moera.cli", "env", "serve", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_custom_environment_is_served_and_stops_on_sigterm() -> None:
    process = start("examples.custom_env.guess:Guess", "--listen", "127.0.0.1:0")
    assert process.stdout is not None
    address = process.stdout.readline().rpartition(" ")[2].strip()
    async with rpc.channel(address) as channel:
        stub = envs_pb2_grpc.EnvServiceStub(channel)
        task = common_pb2.Task(env_id="Guess", task_id="42")
        await ask(stub.Reset, envs_pb2.ResetRequest(episode_id="e", task=task))
        answers = []
        for number, guess in enumerate(("50", "42"), 1):
            message = text_message(common_pb2.ROLE_ASSISTANT, guess)
            action = envs_pb2.Action(message=message)
            request = envs_pb2.StepRequest(episode_id="e", step=number, action=action)
            answers.append(await ask(stub.Step, request))
    assert message_text(answers[0].observation.messages[0]) == "Lower."
    assert (answers[1].reward, answers[1].terminated) == (0.75, True)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere:Env",), "No module named 'nowhere'"),
        (("examples.custom_env.guess:Guess", "--param", "x"), "write name=value"),
        (("examples.custom_env.guess:Guess", "--param", "x=1"), "cannot be made with"),
    ],
)
def test_a_wrong_command_says_what_to_change(arguments: tuple[str, ...], message: str) -> None:
    process = start(*arguments)
    _, error = process.communicate(timeout=50)
    assert process.returncode == 2
    assert message in error
