"""Train: `python -m services.learner --config run.toml`."""

import asyncio
import sys

from moera import rpc, service
from moera.errors import ConfigError
from moera.v1 import learner_pb2_grpc
from services.learner.assembly import assembled
from services.learner.config import LearnerConfig
from services.learner.control import Control
from services.learner.servicer import LearnerServicer
from services.learner.trainer import Trainer

_STOP_S = 1.0


async def serve(run: LearnerConfig) -> None:
    """Train until the last step, or until SIGTERM; the next start goes on from a checkpoint."""
    stopped = rpc.stop_signal()
    if not run.run.id:
        raise ConfigError("run.id is empty: every service of a run carries the run's id")
    control = Control()
    server = rpc.RpcServer(run.learner.listen)
    servicer = LearnerServicer(control, run.run.id, run.learner.num_steps)
    learner_pb2_grpc.add_LearnerServiceServicer_to_server(servicer, server.grpc)
    await server.start(("moera.v1.LearnerService",))
    async with assembled(run) as parts:
        await server.set_serving(True)
        training = asyncio.create_task(Trainer(run, parts, control).run())
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait([training, stopping], return_when=asyncio.FIRST_COMPLETED)
        if training.done() and not training.exception() and run.learner.linger:
            await stopping
        await server.stop(_STOP_S)
        if training.done():
            training.result()
        training.cancel()
        await asyncio.wait([training])


if __name__ == "__main__":
    sys.exit(service.main("learner", LearnerConfig, serve))
