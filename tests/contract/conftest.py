"""A cache over a real Redis and a real socket."""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moera import rpc
from moera.objects import FileStore
from moera.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from moera.weights.encoder import ShardEncoder
from moera.weights.publish import publish
from moera.wire import Version, pack
from services.cache import connection
from services.cache.config import CacheSection
from services.cache.experience import ExperienceStore
from services.cache.servicer import CheckpointServicer, ExperienceServicer
from services.cache.versions import VersionStore

_numbers = itertools.count()
BASE = Version(1, 0)


async def ask(method: Callable[..., Awaitable[Any]], request: Any) -> Any:
    """Call with a deadline; errors are typed."""
    return await rpc.call(method, request, deadline_s=10.0)


@dataclass
class Cache:
    """A running cache and the moves of its users."""

    run_id: str
    objects: FileStore
    experience: cache_pb2_grpc.ExperienceServiceStub
    checkpoint: cache_pb2_grpc.CheckpointServiceStub
    fence: cache_pb2.Fence
    redis: Any

    def store(self, section: CacheSection) -> ExperienceStore:
        """Return another replica's store of this run, with settings of its own."""
        return ExperienceStore(self.redis, self.run_id, self.objects, section)

    async def open(
        self, restored: int = 0, groups: int = 2, staleness: int = 1, request_id: str = ""
    ) -> cache_pb2.OpenLineageResponse:
        """Open a lineage and use its fence from here on."""
        opened = await ask(
            self.experience.OpenLineage,
            cache_pb2.OpenLineageRequest(
                request_id=request_id or f"open-{next(_numbers)}",
                run_id=self.run_id,
                restored_step=restored,
                budget=cache_pb2.StalenessBudget(groups_per_step=groups, max_staleness=staleness),
            ),
        )
        self.fence = opened.fence
        return opened

    async def enqueue(self, *groups: common_pb2.Group) -> cache_pb2.EnqueueResponse:
        """Offer groups."""
        request = cache_pb2.EnqueueRequest(fence=self.fence, groups=groups)
        return await ask(self.experience.Enqueue, request)

    async def lease(
        self, count: int = 8, ttl_ms: int = 60_000, version: Version | None = None, **more: Any
    ) -> list[cache_pb2.SampleLease]:
        """Lease samples."""
        request = cache_pb2.LeaseRequest(
            **{"request_id": f"lease-{next(_numbers)}", "server_id": "r0", **more},
            max_samples=count,
            ttl_ms=ttl_ms,
        )
        if version:
            request.serving_version.CopyFrom(version.proto())
        return list((await ask(self.experience.Lease, request)).leases)

    async def commit(
        self, lease: cache_pb2.SampleLease, version: Version = BASE, reward: float = 1.0
    ) -> "cache_pb2.CommitOutcome":
        """Commit a trajectory made by one version."""
        trajectory = common_pb2.Trajectory(
            sample_id=lease.sample_id, group_id=lease.group.group_id, reward=reward
        )
        summary = cache_pb2.SampleSummary(
            oldest_version=version.proto(), newest_version=version.proto(), reward=reward
        )
        request = cache_pb2.CommitRequest(
            lease=ref(lease), server_id="r0", summary=summary, trajectory=pack(trajectory)
        )
        return (await ask(self.experience.Commit, request)).outcome

    async def fail(
        self, lease: cache_pb2.SampleLease, retryable: bool = False, server_id: str = "r0"
    ) -> cache_pb2.FailResponse:
        """Report a failure."""
        failure = common_pb2.Failure(kind=common_pb2.FAILURE_KIND_ENVIRONMENT, message="it broke")
        request = cache_pb2.FailRequest(
            lease=ref(lease), server_id=server_id, failure=failure, retryable=retryable
        )
        return await ask(self.experience.Fail, request)

    async def take(self, step: int) -> cache_pb2.TakeBatchResponse:
        """Take a step's batch."""
        request = cache_pb2.TakeBatchRequest(fence=self.fence, step=step)
        return await ask(self.experience.TakeBatch, request)

    async def publish(self, step: int) -> None:
        """Publish small weights as a step of the living lineage."""
        version = Version(self.fence.epoch, step)
        shard = ShardEncoder().encode(version, {"w": np.full(4, step, "<f4")}, anchor=True)
        header = cache_pb2.ManifestHeader(version=version.proto())
        await publish(self.checkpoint, self.fence, header, shard, durable=False, patience_s=0)

    async def commit_step(self, step: int) -> int:
        """Retire batches."""
        request = cache_pb2.CommitStepRequest(fence=self.fence, step=step)
        return (await ask(self.experience.CommitStep, request)).trained_samples

    async def stats(self) -> cache_pb2.GetStatsResponse:
        """Read the accounting, and check that it balances."""
        stats = await ask(self.experience.GetStats, cache_pb2.GetStatsRequest())
        parts = {
            field.name: getattr(stats.counts, field.name)
            for field in cache_pb2.SampleCounts.DESCRIPTOR.fields
        }
        assert parts.pop("enqueued") == sum(parts.values()), parts
        return stats

    async def play(self, *groups: common_pb2.Group, version: Version = BASE) -> None:
        """Enqueue, lease and commit whole groups."""
        await self.enqueue(*groups)
        for lease in await self.lease(count=1000):
            await self.commit(lease, version)


def ref(lease: cache_pb2.SampleLease) -> cache_pb2.LeaseRef:
    """Return the reference to a lease."""
    return cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token)


def train_group(name: str, size: int = 2) -> common_pb2.Group:
    """Return a training group."""
    task = common_pb2.Task(env_id="sums", task_id="1")
    return common_pb2.Group(
        group_id=name, task=task, num_samples=size, purpose=common_pb2.PURPOSE_TRAIN
    )


@pytest.fixture
async def cache(redis_url: str, tmp_path: Path) -> AsyncIterator[Cache]:
    """A cache of its own run, with a lineage of 2 groups a step and staleness 1."""
    run_id = f"run-{os.getpid()}-{next(_numbers)}"
    section = CacheSection(redis_url=redis_url, max_attempts=3, poll_s=0.02)
    redis = connection.connect(section)
    await connection.check(redis, run_id, section)
    objects = FileStore(tmp_path / "objects")
    server = rpc.RpcServer("127.0.0.1:0")
    cache_pb2_grpc.add_ExperienceServiceServicer_to_server(
        ExperienceServicer(ExperienceStore(redis, run_id, objects, section), 0.02), server.grpc
    )
    cache_pb2_grpc.add_CheckpointServiceServicer_to_server(
        CheckpointServicer(VersionStore(redis, run_id, objects, section), 0.02), server.grpc
    )
    await server.start(())
    async with rpc.channel(server.address) as channel:
        made = Cache(
            run_id,
            objects,
            cache_pb2_grpc.ExperienceServiceStub(channel),
            cache_pb2_grpc.CheckpointServiceStub(channel),
            cache_pb2.Fence(),
            redis,
        )
        await made.open()
        yield made
    await server.stop(0)
    await redis.aclose()
