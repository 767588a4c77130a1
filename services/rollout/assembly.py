"""Puts a rollout server together: engine, chat, environments, weights and worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from moera import rpc
from moera.env.client import EnvClient
from moera.models.policy import load_config, load_tokenizer, model_identity, stop_token_ids
from moera.v1 import cache_pb2_grpc
from services.rollout.chat import Chat
from services.rollout.config import RolloutConfig
from services.rollout.engine_loop import EngineLoop
from services.rollout.episode import Stage
from services.rollout.native.engine import NativeEngine
from services.rollout.weights import WeightFollower
from services.rollout.worker import Worker


@dataclass(frozen=True)
class Parts:
    """What a rollout server runs."""

    stage: Stage
    weights: WeightFollower
    worker: Worker


@asynccontextmanager
async def assembled(run: RolloutConfig, server: rpc.RpcServer) -> AsyncIterator[Parts]:
    """Load the model and open what the server needs; `server` hears whether it is ready.

    Raises:
        ConfigError: the model is missing, incomplete, or no MoE.
    """
    section, path = run.rollout, run.model.path
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

        async def on_ready(ready: bool) -> None:
            await server.set_serving(ready and not worker.draining)

        checkpoints = cache_pb2_grpc.CheckpointServiceStub(channel)
        weights = WeightFollower(checkpoints, engine, section, on_ready)
        experience = cache_pb2_grpc.ExperienceServiceStub(channel)
        worker = Worker(experience, weights, stage, model_identity(path))
        yield Parts(stage, weights, worker)
        await environments.close()
    await engine.stop()
