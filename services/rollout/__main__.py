"""Serve rollouts: `python -m services.rollout --config run.toml --rollout.server_id r0`."""

import asyncio
import sys

from moera import rpc, service
from moera.v1 import rollout_pb2_grpc
from services.rollout.assembly import assembled
from services.rollout.config import RolloutConfig
from services.rollout.servicer import RolloutServicer

_STOP_S = 1.0


async def serve(run: RolloutConfig) -> None:
    """Serve until SIGTERM or Drain; running samples are stored as partials."""
    stopped = rpc.stop_signal()
    server = rpc.RpcServer(run.rollout.listen)
    async with assembled(run, server) as parts:
        weights, worker = parts.weights, parts.worker
        servicer = RolloutServicer(parts.stage, weights, worker, stopped.set)
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(servicer, server.grpc)
        await server.start(("moera.v1.RolloutService",))
        tasks = [asyncio.create_task(each()) for each in (weights.run, worker.run, stopped.wait)]
        first, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await server.set_serving(False)
        await worker.drain(run.rollout.drain_s)
        await server.stop(_STOP_S)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in first:
            task.result()  # a bug ends the process with its traceback


if __name__ == "__main__":
    sys.exit(service.main("rollout", RolloutConfig, serve))
