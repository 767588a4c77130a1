"""What was acknowledged survives the death of Redis, with the settings that a run gives it."""

import signal
from pathlib import Path

import pytest

from moera import errors
from moera.objects import FileStore
from moera.v1 import cache_pb2, common_pb2
from moera.wire import Version, pack, unpack
from services.cache import connection
from services.cache.config import CacheSection
from services.cache.experience import ExperienceStore
from tests.conftest import free_port, start_redis
from tests.contract.conftest import ref, train_group


async def test_no_acknowledged_commit_is_lost_when_redis_is_killed(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    process = start_redis(tmp_path / "redis", port)
    try:
        section = CacheSection(redis_url=url, redis_timeout_s=2.0)
        client = connection.connect(section)
        await connection.check(client, "run", section)
        store = ExperienceStore(client, "run", FileStore(tmp_path / "objects"), section)
        budget = cache_pb2.StalenessBudget(groups_per_step=4, max_staleness=1)
        opening = cache_pb2.OpenLineageRequest(request_id="a", run_id="run", budget=budget)
        fence = (await store.open_lineage(opening)).fence
        await store.enqueue(fence, [train_group(f"g{n}", 4) for n in range(8)])
        leasing = cache_pb2.LeaseRequest(
            request_id="l", server_id="r", max_samples=32, ttl_ms=60_000
        )
        leases = await store.lease(leasing)
        version = Version(1, 0).proto()
        for number, lease in enumerate(leases[:21]):
            summary = cache_pb2.SampleSummary(
                oldest_version=version, newest_version=version, reward=float(number)
            )
            trajectory = common_pb2.Trajectory(sample_id=lease.sample_id, reward=float(number))
            request = cache_pb2.CommitRequest(
                lease=ref(lease), server_id="r", summary=summary, trajectory=pack(trajectory)
            )
            await store.commit(request)
        before = await store.stats()
        process.send_signal(signal.SIGKILL)  # right behind the last acknowledgement
        process.wait()
        with pytest.raises(errors.UnavailableError):
            await store.stats()
        process = start_redis(tmp_path / "redis", port)
        after = await store.stats()
        assert after.counts == before.counts
        assert (after.counts.committed + after.counts.ready, after.counts.leased) == (21, 11)
        for number, lease in enumerate(leases[:21]):
            kept = unpack(await store.payload(lease.sample_id), common_pb2.Trajectory)
            assert kept.reward == number
        # The same lineage goes on, and a repeated commit is still a duplicate.
        assert (await store.open_lineage(opening)).fence == fence
        assert await store.commit(request) == cache_pb2.COMMIT_OUTCOME_DUPLICATE
        await client.aclose()
    finally:
        process.kill()
        process.wait()


async def test_no_group_is_accepted_past_the_memory_budget(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    process = start_redis(tmp_path / "redis", port)
    try:
        section = CacheSection(redis_url=url, memory_budget_mib=3)
        client = connection.connect(section)
        await connection.check(client, "run", section)
        store = ExperienceStore(client, "run", FileStore(tmp_path / "objects"), section)
        budget = cache_pb2.StalenessBudget(groups_per_step=4, max_staleness=1)
        opening = cache_pb2.OpenLineageRequest(request_id="a", run_id="run", budget=budget)
        fence = (await store.open_lineage(opening)).fence
        assert (await store.enqueue(fence, [train_group("a")])).accepted_group_ids == ["a"]
        # In small pieces: a connection's own buffers count as memory too.
        for number in range(300):
            await client.set(f"filler-{number}", b"x" * 2**14)
        with pytest.raises(errors.ResourceExhaustedError, match="past the budget of 3 MiB"):
            await store.enqueue(fence, [train_group("b")])
        await client.delete(*(f"filler-{n}" for n in range(300)))
        assert (await store.enqueue(fence, [train_group("b")])).accepted_group_ids == ["b"]
        await client.aclose()
    finally:
        process.kill()
        process.wait()
