"""A rollout server and its environments in this process, on real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForCausalLM

from moera import rpc
from moera.config import EnvironmentSection
from moera.env import Environment, StepResult
from moera.env.client import EnvClient
from moera.env.episodes import Episodes
from moera.env.servicer import EnvServicer
from moera.models.policy import load_config, load_tokenizer, model_identity, stop_token_ids
from moera.v1 import (
    cache_pb2,
    common_pb2,
    envs_pb2,
    envs_pb2_grpc,
    rollout_pb2_grpc,
)
from moera.weights.encoder import ShardEncoder
from moera.weights.publish import publish
from moera.wire import Version, tensor_to_proto, unpack
from services.envs.calculator import Calculator
from services.rollout.chat import Chat
from services.rollout.config import RolloutSection
from services.rollout.engine_loop import EngineLoop
from services.rollout.episode import Stage
from services.rollout.native.engine import NativeEngine
from services.rollout.servicer import RolloutServicer
from services.rollout.weights import WeightFollower
from services.rollout.worker import Worker
from tests.contract.conftest import Cache


class Talk(Environment):
    """Three turns of small talk; the reward is the length of what was said, in characters."""

    max_turns = 3

    def tasks(self, split: str) -> list[str]:
        return ["0"]

    def reset(self, task: common_pb2.Task) -> str:
        self.turns = 0
        return f"talk {task.task_id}"

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        self.turns += 1
        return StepResult(
            reward=float(len(text)), terminated=self.turns == 3, messages=f"heard {len(text)}"
        )


class Broken(Environment):
    """Breaks in the way that its task names."""

    max_turns = 2

    def tasks(self, split: str) -> list[str]:
        return ["raises", "unscored"]

    def reset(self, task: common_pb2.Task) -> str:
        self.how = task.task_id
        return "go"

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        if self.how == "raises":
            raise RuntimeError("lost the dice")
        return StepResult(terminated=True)


FACTORIES: dict[str, Callable[[], Environment]] = {
    "talk": Talk,
    "broken": Broken,
    "calculator": Calculator,
}


@asynccontextmanager
async def env_server(listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Serve the environments above; yields the address."""
    episodes = Episodes(FACTORIES, max_episodes=64, lease_s=30.0, call_deadline_s=5.0)
    server = rpc.RpcServer(listen)
    envs_pb2_grpc.add_EnvServiceServicer_to_server(EnvServicer(episodes), server.grpc)
    await server.start(())
    yield server.address
    await server.stop(0)


@dataclass
class Server:
    """A running rollout server."""

    stub: rollout_pb2_grpc.RolloutServiceStub
    worker: Worker
    weights: WeightFollower
    stage: Stage


@asynccontextmanager
async def rollout_server(
    model: Path, cache: Cache, env_address: str, *, works: bool = True, **options: Any
) -> AsyncIterator[Server]:
    """Serve the model from the cache's weights; with `works` it also plays samples."""
    values = {"server_id": "r0", "weights_poll_s": 0.1, "lease_ttl_s": 5.0, "kv_cache_mib": 8}
    section = RolloutSection(**{**values, **options})
    server = rpc.RpcServer("127.0.0.1:0")
    engine = EngineLoop(NativeEngine(str(model), "float32", section))
    environments = EnvClient(
        [EnvironmentSection(id=name, address=env_address) for name in FACTORIES],
        "",
        deadline_s=5.0,
        patience_s=section.environment_patience_s,
    )
    path = str(model)
    chat = Chat(load_tokenizer(path), stop_token_ids(path))
    stage = Stage(chat, engine, environments, section, load_config(path).max_position_embeddings)
    weights = WeightFollower(cache.checkpoint, engine, section, server.set_serving)
    worker = Worker(cache.experience, weights, stage, model_identity(path))
    servicer = RolloutServicer(stage, weights, worker, lambda: None)
    rollout_pb2_grpc.add_RolloutServiceServicer_to_server(servicer, server.grpc)
    await server.start(("moera.v1.RolloutService",))
    tasks = [asyncio.create_task(weights.run())]
    if works:
        tasks.append(asyncio.create_task(worker.run()))
    async with rpc.channel(server.address) as channel:
        yield Server(rollout_pb2_grpc.RolloutServiceStub(channel), worker, weights, stage)
        await worker.drain(2.0) if works else None
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await server.stop(0)
    await environments.close()
    await engine.stop()


def tensors(model: Path) -> dict[str, np.ndarray]:
    """Return a checkpoint's tensors, tied ones once."""
    loaded = AutoModelForCausalLM.from_pretrained(model)
    found = {name: value.detach().numpy().copy() for name, value in loaded.state_dict().items()}
    del found["lm_head.weight"]
    return found


async def publish_weights(
    cache: Cache,
    version: Version,
    values: dict[str, np.ndarray],
    probe: tuple[list[int], np.ndarray] | None = None,
) -> None:
    """Publish weights as a version of the living lineage."""
    header = cache_pb2.ManifestHeader(version=version.proto())
    if probe:
        header.probe.token_ids.extend(probe[0])
        header.probe.logprobs.CopyFrom(tensor_to_proto(probe[1].astype("<f4")))
    shard = ShardEncoder().encode(version, values, anchor=True)
    await publish(cache.checkpoint, cache.fence, header, shard, durable=False, patience_s=0)


def group(name: str, env_id: str, task_id: str = "0", **more: Any) -> common_pb2.Group:
    """Return a training group of two samples."""
    sampling = common_pb2.SamplingParams(temperature=1.0, max_new_tokens=more.pop("tokens", 12))
    values = {"num_samples": 2, "purpose": common_pb2.PURPOSE_TRAIN, "sampling_seed": 7}
    task = common_pb2.Task(env_id=env_id, task_id=task_id)
    return common_pb2.Group(group_id=name, task=task, sampling=sampling, **{**values, **more})


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for a condition (plain or async)."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.005)


async def trajectories(cache: Cache, sample_ids: list[str]) -> dict[str, common_pb2.Trajectory]:
    """Return committed trajectories."""
    found: dict[str, common_pb2.Trajectory] = {}
    request = cache_pb2.FetchTrajectoriesRequest(sample_ids=sample_ids)
    async for part in rpc.stream(cache.experience.FetchTrajectories, request, deadline_s=10.0):
        found[part.sample_id] = unpack(part.trajectory, common_pb2.Trajectory)
    return found


async def ready(cache: Cache, groups: int) -> bool:
    """Return whether so many groups are ready."""
    return (await cache.stats()).ready_groups >= groups
