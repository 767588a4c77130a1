"""The cache dies at each of its calls to Redis and the object store in turn; a new one goes on.

A fixed script of calls is run once without a fault. Then, for every i, it is run with the i-th
storage call cut off, before or after it took effect; whoever called the cache calls the new one
again with the same ids, and what is stored at the end must be the same.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moera.errors import MoeraError
from moera.objects import FileStore
from moera.v1 import cache_pb2, common_pb2
from moera.weights.encoder import ShardEncoder
from moera.weights.manifest import target_digest
from moera.wire import Version, pack
from services.cache import connection
from services.cache.config import CacheSection
from services.cache.experience import ExperienceStore
from services.cache.versions import VersionStore

_runs = itertools.count()
V0, V1 = Version(1, 0), Version(1, 1)


class DeathError(Exception):
    """The cache process is gone."""


class Counter:
    """Counts storage calls and kills the process at one of them."""

    def __init__(self, at: int = 0, after: bool = False) -> None:
        self.calls = 0
        self._at = at
        self._after = after

    def before(self) -> None:
        self.calls += 1
        if self.calls == self._at and not self._after:
            raise DeathError

    def after(self) -> None:
        if self.calls == self._at and self._after:
            self._at = 0
            raise DeathError


class MortalRedis:
    """A Redis client of a process that may die at any command."""

    def __init__(self, client: Any, counter: Counter) -> None:
        self._client = client
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._mortal(found) if name in ("get", "set", "hgetall", "info") else found

    def register_script(self, text: str) -> Any:
        return self._mortal(self._client.register_script(text))

    def _mortal(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            self._counter.before()
            answer = await call(*arguments, **options)
            self._counter.after()
            return answer

        return counted


class MortalObjects:
    """An object store of a process that may die at any write or read."""

    def __init__(self, objects: FileStore, counter: Counter) -> None:
        self._objects = objects
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._objects, name)

        def counted(*arguments: Any) -> Any:
            self._counter.before()
            answer = call(*arguments)
            self._counter.after()
            return answer

        return counted


class World:
    """One run's storage, and the cache process of the moment."""

    def __init__(self, client: Any, folder: Path, counter: Counter) -> None:
        self.run_id = f"crash-{os.getpid()}-{next(_runs)}"
        self.client = client
        self.objects = FileStore(folder / self.run_id)
        self.counter = counter
        self.deaths = 0
        self.start()

    def start(self) -> None:
        redis: Any = MortalRedis(self.client, self.counter)
        objects: Any = MortalObjects(self.objects, self.counter)
        self.experience = ExperienceStore(redis, self.run_id, objects, CacheSection())
        self.versions = VersionStore(redis, self.run_id, objects, CacheSection())

    async def ask(self, call: Callable[["World"], Awaitable[Any]]) -> Any:
        """Call the cache, and the next one if it died; ids stay the same."""
        while True:
            try:
                return await call(self)
            except DeathError:
                self.deaths += 1
                self.start()


async def script(world: World) -> dict[str, Any]:
    """A short life of a run; returns everything that must not depend on who died when."""
    ask = world.ask
    budget = cache_pb2.StalenessBudget(groups_per_step=2, max_staleness=1)
    opening = cache_pb2.OpenLineageRequest(request_id="o", run_id=world.run_id, budget=budget)
    fence = (await ask(lambda w: w.experience.open_lineage(opening))).fence
    for version in (V0, V1):
        if version == V1:
            await play(world, fence)
        await publish(world, fence, version)
    taking = cache_pb2.TakeBatchRequest(fence=fence, step=2)
    second = await ask(lambda w: w.experience.take_batch(taking))
    await ask(lambda w: w.experience.commit_step(fence, 1))
    stats = await ask(lambda w: w.experience.stats())
    stats.used_memory_bytes = 0
    stats.duplicate_commits = 0  # a repeat of a commit is counted, and nothing else
    return {
        "stats": stats.SerializeToString(deterministic=True),
        "batches": [
            world.objects.get(f"assignments/{step:08d}")
            for step in (1, 2)
            if world.objects.exists(f"assignments/{step:08d}")
        ],
        "second": second.SerializeToString(deterministic=True),
        "payloads": await payloads(world),
        "weights": await manifests(world),
        "objects": world.objects.list("weights"),
    }


async def play(world: World, fence: cache_pb2.Fence) -> None:
    """Enqueue, lease, store a partial, fail, commit, and take the first batch."""
    ask = world.ask
    groups = [
        common_pb2.Group(
            group_id=f"g{number}",
            task=common_pb2.Task(env_id="e", task_id="t"),
            num_samples=3,
            purpose=common_pb2.PURPOSE_TRAIN,
        )
        for number in range(4)
    ]
    await ask(lambda w: w.experience.enqueue(fence, groups))
    leasing = cache_pb2.LeaseRequest(
        request_id="l", server_id="r", max_samples=12, ttl_ms=600_000, serving_version=V0.proto()
    )
    leases = await ask(lambda w: w.experience.lease(leasing))
    assert len(leases) == 12
    refs = [cache_pb2.LeaseRef(sample_id=each.sample_id, token=each.token) for each in leases]
    saving = cache_pb2.SavePartialRequest(lease=refs[0], partial=pack(cache_pb2.Partial()))
    await ask(lambda w: w.experience.save_partial(saving))
    failure = common_pb2.Failure(kind=common_pb2.FAILURE_KIND_ENVIRONMENT, message="x")
    failing = cache_pb2.FailRequest(lease=refs[5], server_id="r", failure=failure)
    await ask(lambda w: w.experience.fail(failing))
    for number, ref in enumerate(refs):
        if number in (5, 11):
            continue
        trajectory = common_pb2.Trajectory(sample_id=ref.sample_id, reward=float(number))
        committing = cache_pb2.CommitRequest(
            lease=ref,
            server_id="r",
            summary=cache_pb2.SampleSummary(
                oldest_version=V0.proto(), newest_version=V0.proto(), reward=float(number)
            ),
            trajectory=pack(trajectory),
        )
        await ask(lambda w, request=committing: w.experience.commit(request))
    taking = cache_pb2.TakeBatchRequest(fence=fence, step=1)
    first = await ask(lambda w: w.experience.take_batch(taking))
    assert first.assigned


async def publish(world: World, fence: cache_pb2.Fence, version: Version) -> None:
    """Put chunks, stage, publish an anchor."""
    ask = world.ask
    shard = ShardEncoder().encode(version, {"w": np.full(3, version.step, "<f4")}, anchor=True)
    for name, data in shard.chunks.items():
        chunk = cache_pb2.Chunk(digest=name, data=data)
        await ask(lambda w, chunk=chunk: w.versions.put_chunk(chunk, True))
    stage = cache_pb2.StageShardRequest(
        fence=fence, version=version.proto(), world_size=1, slices=shard.slices
    )
    await ask(lambda w: w.versions.stage(stage))
    header = cache_pb2.ManifestHeader(
        version=version.proto(), world_size=1, target_digest=target_digest(shard.slices)
    )
    await ask(lambda w: w.versions.publish(fence, header))


async def payloads(world: World) -> dict[str, bytes]:
    found = {}
    for group, index in itertools.product(range(4), range(3)):
        sample_id = f"g{group}/{index}"
        try:
            payload = await world.ask(lambda w, each=sample_id: w.experience.payload(each))
        except MoeraError:
            continue
        found[sample_id] = payload.data
    return found


async def manifests(world: World) -> list[bytes]:
    async def read(world: World, version: Version) -> list[cache_pb2.GetManifestResponse]:
        return [part async for part in world.versions.manifest(version, False)]

    found = []
    for version in (V0, V1):
        parts = await world.ask(lambda w, version=version: read(w, version))
        parts[0].header.ClearField("published")
        found += [part.SerializeToString(deterministic=True) for part in parts]
    return found


@pytest.mark.timeout(180)
async def test_whoever_dies_when_what_is_stored_at_the_end_is_the_same(
    redis_url: str, tmp_path: Path
) -> None:
    client = connection.connect(CacheSection(redis_url=redis_url))
    counter = Counter()
    expected = await script(World(client, tmp_path, counter))
    total = counter.calls
    assert total > 40
    for at, after in itertools.product(range(1, total + 1), (False, True)):
        world = World(client, tmp_path, Counter(at, after))
        found = await asyncio.wait_for(script(world), 20)
        assert found == expected, f"died {'after' if after else 'before'} storage call {at}"
        assert world.deaths == 1
    await client.aclose()
