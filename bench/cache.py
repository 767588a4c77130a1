"""How much does a cache replica carry? `python -m bench.cache`.

One `services.cache` process over one Redis, driven over gRPC from this process: leases, commits of
realistic trajectories (4,096 tokens; without routes, and with those of 48 layers, 8 experts each)
and fetches. Beside it the same Redis stores and returns the very same bytes for a plain client with
as many calls in flight: the ratio is what the service costs.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import redis.asyncio as aioredis

from bench import machine
from moera import rpc, wire
from moera.local import redis as local_redis
from moera.local.ports import free_ports
from moera.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from moera.wire import TokenSequence, Version

_TOKENS, _PROMPT, _LAYERS, _TOP_K = 4096, 512, 48, 8
_IN_FLIGHT = 32
_GROUP_SIZE = 8


def trajectory(routes: bool, noise: np.random.Generator) -> common_pb2.Trajectory:
    """Return a trajectory of 4,096 tokens."""
    mask = np.arange(_TOKENS) >= _PROMPT
    prompt, policy = common_pb2.SEGMENT_SOURCE_PROMPT, common_pb2.SEGMENT_SOURCE_POLICY
    span = common_pb2.VersionSpan(
        version=Version(1, 0).proto(), start=_PROMPT, num_tokens=_TOKENS - _PROMPT
    )
    shape = (_TOKENS, _LAYERS, _TOP_K)
    sequence = TokenSequence(
        noise.integers(0, 150_000, _TOKENS).astype("<i4"),
        mask,
        np.where(mask, -noise.exponential(0.5, _TOKENS), 0).astype("<f4"),
        [
            common_pb2.Segment(source=prompt, start=0, num_tokens=_PROMPT),
            common_pb2.Segment(source=policy, start=_PROMPT, num_tokens=_TOKENS - _PROMPT),
        ],
        [span],
        noise.integers(0, 128, shape).astype(np.uint8) if routes else None,
    )
    return common_pb2.Trajectory(sequences=[wire.sequence_to_proto(sequence)], reward=1.0)


async def side_by_side(
    call: Callable[[int], Awaitable[Any]], count: int
) -> tuple[float, list[float]]:
    """Make calls 0 to count - 1, some in flight; returns seconds and each call's latency."""
    waits: list[float] = []
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            began = time.perf_counter()
            await call(number)
            waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(_IN_FLIGHT)))
    return time.perf_counter() - began, waits


def show(what: str, count: int, size: int, timed: tuple[float, list[float]]) -> float:
    """Print a line; returns MB each second."""
    seconds, waits = timed
    ordered = sorted(waits)
    rate = count * size / seconds / 1e6
    print(
        f"| {what} | {count / seconds:,.0f} | {rate:,.1f} | "
        f"{1e3 * statistics.median(ordered):.1f} | {1e3 * ordered[int(0.99 * len(ordered))]:.1f} |",
        flush=True,
    )
    return rate


async def measure(stub: Any, client: Any, kind: str, count: int) -> None:
    """Commit and fetch `count` trajectories, and let plain Redis do the same bytes."""
    noise = np.random.default_rng(0)
    made = [wire.pack(trajectory(kind == "routes", noise)) for _ in range(16)]
    size = statistics.mean(len(payload.data) for payload in made)
    leases = await leased(stub, kind, count)
    summary = cache_pb2.SampleSummary(
        oldest_version=Version(1, 0).proto(), newest_version=Version(1, 0).proto(), reward=1.0
    )

    async def commit(number: int) -> None:
        lease = leases[number]
        ref = cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token)
        request = cache_pb2.CommitRequest(
            lease=ref, server_id="bench", summary=summary, trajectory=made[number % 16]
        )
        await rpc.call(stub.Commit, request, deadline_s=60.0)

    async def fetch(number: int) -> None:
        request = cache_pb2.FetchTrajectoriesRequest(sample_ids=[leases[number].sample_id])
        async for _ in rpc.stream(stub.FetchTrajectories, request, deadline_s=60.0):
            pass

    print(f"\n{kind}: {size / 1e3:,.0f} kB each, compressed\n")
    print("| call | calls/s | MB/s | p50 ms | p99 ms |\n|---|---|---|---|---|")
    put = show("Commit", count, int(size), await side_by_side(commit, count))
    raw_put = show(
        "plain Redis SET",
        count,
        int(size),
        await side_by_side(lambda n: client.set(f"raw:{n}", made[n % 16].data), count),
    )
    got = show("FetchTrajectories", count, int(size), await side_by_side(fetch, count))
    raw_got = show(
        "plain Redis GET",
        count,
        int(size),
        await side_by_side(lambda n: client.get(f"raw:{n}"), count),
    )
    print(f"\nratio to plain Redis: put {put / raw_put:.2f}, get {got / raw_got:.2f}")


async def leased(stub: Any, kind: str, count: int) -> Sequence[cache_pb2.SampleLease]:
    """Open a lineage with room, enqueue, and lease all samples."""
    budget = cache_pb2.StalenessBudget(groups_per_step=count, max_staleness=1)
    opening = cache_pb2.OpenLineageRequest(request_id=kind, run_id="bench", budget=budget)
    fence = (await rpc.call(stub.OpenLineage, opening, deadline_s=30.0)).fence
    groups = [
        common_pb2.Group(
            group_id=f"{kind}-{number}",
            task=common_pb2.Task(env_id="e", task_id="t"),
            num_samples=_GROUP_SIZE,
            purpose=common_pb2.PURPOSE_TRAIN,
        )
        for number in range(count // _GROUP_SIZE)
    ]
    enqueueing = cache_pb2.EnqueueRequest(fence=fence, groups=groups)
    await rpc.call(stub.Enqueue, enqueueing, deadline_s=60.0)
    found: list[cache_pb2.SampleLease] = []
    began = time.perf_counter()
    while len(found) < count:
        request = cache_pb2.LeaseRequest(
            request_id=f"{kind}-{len(found)}", server_id="bench", max_samples=64, ttl_ms=3_000_000
        )
        found += (await rpc.call(stub.Lease, request, deadline_s=30.0)).leases
    rate = count / (time.perf_counter() - began)
    print(f"\nleases, 64 at a time: {rate:,.0f} samples/s")
    return found


async def drive(port: int, url: str, count: int) -> None:
    """Measure a replica that is starting up."""
    client = aioredis.Redis.from_url(url, max_connections=_IN_FLIGHT)
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        stub = cache_pb2_grpc.ExperienceServiceStub(channel)
        await rpc.call(stub.GetStats, cache_pb2.GetStatsRequest(), deadline_s=5.0, patience_s=30.0)
        await measure(stub, client, "tokens", count)
        await measure(stub, client, "routes", count // 8)
    await client.aclose()


def run(folder: Path, count: int) -> None:
    """Start Redis and one replica, and measure."""
    redis_port, port = free_ports(2)
    url = f"redis://127.0.0.1:{redis_port}/0"
    command = local_redis.command(folder / "redis", redis_port)
    flags = {
        "--run.id": "bench",
        "--run.dir": str(folder),
        "--cache.listen": f"127.0.0.1:{port}",
        "--cache.redis_url": url,
    }
    service = [sys.executable, "-m", "services.cache", *(x for pair in flags.items() for x in pair)]
    with (
        subprocess.Popen(command.argv, stdout=subprocess.DEVNULL) as server,
        subprocess.Popen(service) as replica,
    ):
        asyncio.run(drive(port, url, count))
        replica.terminate()
        server.terminate()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4096, help="trajectories without routes")
    arguments = parser.parse_args()
    print(f"Machine: {machine.describe()}; client, replica and Redis share it")
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), arguments.count)


if __name__ == "__main__":
    main()
