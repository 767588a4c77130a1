"""Serve rollouts: `python -m services.rollout --config run.toml --rollout.server_id r0`."""

import asyncio
import sys

from moera import rpc, service
from moera.env.client import EnvClient
from moera.models.policy import load_config, load_tokenizer, model_identity, stop_token_ids
from moera.v1 import cache_pb2_grpc, rollout_pb2_grpc
from services.rollout.chat import Chat
from services.rollout.config import RolloutConfig
from services.rollout.engine_loop import EngineLoop
from services.rollout.episode import Stage
from services.rollout.native.engine import NativeEngine
from services.rollout.servicer import RolloutServicer
from services.rollout.weights import WeightFollower
from services.rollout.worker import Worker

_STOP_S = 1.0


async def serve(run: RolloutConfig) -> None:
    """Serve until SIGTERM or Drain; running samples are stored as partials."""
    stopped = rpc.stop_signal()
    section, path = run.rollout, run.model.path
    server = rpc.RpcServer(section.listen)
    engine = EngineLoop(NativeEngine(path, run.model.dtype, section))
    chat = Chat(load_tokenizer(path), stop_token_ids(path))
    environments = EnvClient(
        run.environment,
        run.addresses.envs,
        deadline_s=section.environment_deadline_s,
        patience_s=section.environment_patience_s,
    )
    stage = Stage(chat, engine, environments, section, load_config(path).max_position_embeddings)
    async with rpc.channel(run.addresses.cache) as channel:
        checkpoints = cache_pb2_grpc.CheckpointServiceStub(channel)

        async def on_ready(ready: bool) -> None:
            await server.set_serving(ready and not worker.draining)

        weights = WeightFollower(checkpoints, engine, section, on_ready)
        experience = cache_pb2_grpc.ExperienceServiceStub(channel)
        worker = Worker(experience, weights, stage, model_identity(path))
        servicer = RolloutServicer(stage, weights, worker, stopped.set)
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(servicer, server.grpc)
        await server.start(("moera.v1.RolloutService",))
        tasks = [asyncio.create_task(run()) for run in (weights.run, worker.run, stopped.wait)]
        first, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await server.set_serving(False)
        await worker.drain(section.drain_s)
        await server.stop(_STOP_S)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await environments.close()
        for task in first:
            task.result()
    await engine.stop()


if __name__ == "__main__":
    sys.exit(service.main("rollout", RolloutConfig, serve))
