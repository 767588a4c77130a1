"""Operator commands against a running system: status and generate."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from moera import config, rpc
from moera.errors import NotFoundError
from moera.local.monitor import Monitor
from moera.local.progress import screen
from moera.v1 import common_pb2, rollout_pb2, rollout_pb2_grpc
from moera.wire import text_message

_GENERATE_DEADLINE_S = 600.0


def run_folder(target: str) -> Path:
    """Return the folder of a run given by its path, or by its id under ./runs.

    Raises:
        NotFoundError: there is no such folder.
    """
    for folder in (Path(target), Path("runs") / target):
        if folder.is_dir():
            return folder
    known = ", ".join(sorted(path.name for path in Path("runs").glob("*"))) or "none"
    raise NotFoundError(f"no run {target!r}; runs here: {known}")


def _run_file(target: str) -> Path:
    file = Path(target)
    return file if file.is_file() else run_folder(target) / "local.toml"


async def status(target: str) -> None:
    """Print one reading of a run's services, given by run id, run folder or run file."""
    file = _run_file(target)
    run = config.load_files(config.ServiceConfig, [file])
    monitor = Monitor(run.addresses)
    try:
        Console().print(screen(run.run.id or run.run.name, await monitor.read(), {}))
    finally:
        await monitor.close()


async def generate(arguments: argparse.Namespace) -> None:
    """Stream one generation from a rollout server to standard output."""
    request = rollout_pb2.GenerateRequest(
        sampling=common_pb2.SamplingParams(
            temperature=arguments.temperature, max_new_tokens=arguments.max_tokens
        ),
        seed=arguments.seed,
    )
    if arguments.raw:
        request.text = arguments.prompt
    else:
        message = text_message(common_pb2.ROLE_USER, arguments.prompt)
        request.conversation.messages.append(message)
    async with rpc.channel(arguments.server) as channel:
        stub = rollout_pb2_grpc.RolloutServiceStub(channel)
        async for piece in rpc.stream(stub.Generate, request, deadline_s=_GENERATE_DEADLINE_S):
            sys.stdout.write(piece.text)
            sys.stdout.flush()
    sys.stdout.write("\n")
