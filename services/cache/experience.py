"""The experience store: samples from enqueued to trained.

    enqueue -> pending -> leased -> committed -> ready -> assigned -> trained
                  ^ release, expiry |      |         |
                  +-----------------+   dropped   evicted, dropped          failed

What moves a sample is a Lua transition (`lua/`); this module checks input, calls them, and writes
each step's assignment to the object store before anybody sees it.
"""

import asyncio
import re
import secrets
from collections.abc import Sequence
from typing import Any

import redis.asyncio as aioredis

from moera import wire
from moera.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from moera.objects import ObjectStore
from moera.v1 import cache_pb2, common_pb2
from services.cache.config import CacheSection
from services.cache.connection import server_info
from services.cache.keys import prefix
from services.cache.transitions import Transitions, redis_errors

_ID = re.compile(r"[A-Za-z0-9._:/@+=-]{1,200}")
_MAX_GROUP_SIZE = 4096
_UPLOAD_TTL_S = 3600


def _check_id(what: str, value: str) -> str:
    if not _ID.fullmatch(value):
        raise InvalidArgumentError(
            f"{what} {value[:60]!r} is not usable: 1 to 200 of A-Z a-z 0-9 . _ : / @ + = -"
        )
    return value


class ExperienceStore:
    """The authoritative store of one run's samples."""

    def __init__(
        self, redis: aioredis.Redis, run_id: str, objects: ObjectStore, section: CacheSection
    ) -> None:
        # Typed loosely: redis-py's types do not know that replies are bytes here.
        self._redis: Any = redis
        self._run_id = run_id
        self._objects = objects
        self._section = section
        self._prefix = prefix(run_id)
        self._run = Transitions(redis, run_id, section).run

    async def open_lineage(
        self, request: cache_pb2.OpenLineageRequest
    ) -> cache_pb2.OpenLineageResponse:
        """Issue a new epoch and fence; every older fence is dead from here on."""
        if request.run_id != self._run_id:
            raise InvalidArgumentError(
                f"this cache serves run {self._run_id!r}, not {request.run_id!r}"
            )
        budget = request.budget
        if not budget.groups_per_step:
            raise InvalidArgumentError("budget.groups_per_step must be at least 1")
        epoch, token, committed, assigned, groups = await self._run(
            "open_lineage",
            _check_id("request_id", request.request_id),
            secrets.token_hex(16),
            request.restored_step,
            budget.groups_per_step,
            budget.max_staleness,
            budget.on_stale,
        )
        return cache_pb2.OpenLineageResponse(
            fence=cache_pb2.Fence(epoch=int(epoch), token=token.decode()),
            committed_step=committed,
            assigned_steps=range(request.restored_step + 1, assigned + 1),
            enqueued_groups=groups,
        )

    async def enqueue(
        self, fence: cache_pb2.Fence, groups: Sequence[common_pb2.Group]
    ) -> cache_pb2.EnqueueResponse:
        """Accept groups up to the staleness budget."""
        await self._refuse_when_full()
        arguments: list[str | bytes | int] = [fence.epoch, fence.token]
        for group in groups:
            _check_group(group)
            pinned = ""
            if group.HasField("pinned_version"):
                pinned = str(wire.Version.of(group.pinned_version))
            arguments += [group.group_id, group.num_samples, group.purpose, group.eval_id, pinned]
            arguments.append(group.SerializeToString())
        accepted, free = await self._run("enqueue", *arguments)
        return cache_pb2.EnqueueResponse(
            accepted_group_ids=[gid.decode() for gid in accepted], free_groups=free
        )

    async def _refuse_when_full(self) -> None:
        with redis_errors():
            memory = await server_info(self._redis, self._run_id, "memory")
        budget = self._section.memory_budget_mib * 2**20 or 0.8 * memory.get("maxmemory", 0)
        if budget and memory["used_memory"] > budget:
            raise ResourceExhaustedError(
                f"Redis holds {memory['used_memory'] >> 20} MiB, past the budget of "
                f"{int(budget) >> 20} MiB: no new groups until batches are retired",
                5.0,
            )

    async def lease(self, request: cache_pb2.LeaseRequest) -> list[cache_pb2.SampleLease]:
        """Hand out up to `max_samples` pending samples; never waits."""
        if not 0 < request.max_samples <= 1024 or not 0 < request.ttl_ms <= 3_600_000:
            raise InvalidArgumentError(
                "lease 1 to 1024 samples for 1 to 3,600,000 ms, not "
                f"{request.max_samples} for {request.ttl_ms}"
            )
        serving = ""
        if request.HasField("serving_version"):
            serving = str(wire.Version.of(request.serving_version))
        rows = await self._run(
            "lease",
            _check_id("request_id", request.request_id),
            _check_id("server_id", request.server_id),
            request.max_samples,
            request.ttl_ms,
            serving,
        )
        return [_lease_of(row) for row in rows]

    async def renew(
        self, leases: Sequence[cache_pb2.LeaseRef], ttl_ms: int
    ) -> list[cache_pb2.LeaseRef]:
        """Extend leases; returns those that are lost."""
        pairs: list[str | int] = []
        for lease in leases:
            pairs += [lease.sample_id, lease.token]
        lost = await self._run("renew", ttl_ms, *pairs)
        return [
            cache_pb2.LeaseRef(sample_id=lost[i].decode(), token=int(lost[i + 1]))
            for i in range(0, len(lost), 2)
        ]

    async def save_partial(self, request: cache_pb2.SavePartialRequest) -> None:
        """Store how far a sample got, and give up its lease if asked to."""
        has_partial = request.HasField("partial") or bool(request.partial_upload_id)
        await self._run(
            "save_partial",
            request.lease.sample_id,
            request.lease.token,
            int(has_partial),
            _checked(request.partial) if request.HasField("partial") else b"",
            request.partial_upload_id,
            int(request.release),
        )

    async def store_upload(self, upload_id: str, header: common_pb2.Payload, data: bytes) -> None:
        """Keep a payload that came in chunks until a commit or partial refers to it."""
        payload = common_pb2.Payload(
            data=data,
            compression=header.compression,
            uncompressed_bytes=header.uncompressed_bytes,
            checksum=header.checksum,
        )
        key = f"{self._prefix}upload:{_check_id('upload_id', upload_id)}"
        with redis_errors():
            await self._redis.set(key, _checked(payload), ex=_UPLOAD_TTL_S)

    async def commit(self, request: cache_pb2.CommitRequest) -> "cache_pb2.CommitOutcome":
        """Store a finished trajectory; the first commit of a sample wins."""
        summary = request.summary
        if not summary.HasField("reward") or summary.HasField("failure"):
            raise InvalidArgumentError("a commit carries a reward; report failures with Fail")
        inline = not request.trajectory_upload_id
        outcome = await self._run(
            "commit",
            request.lease.sample_id,
            request.lease.token,
            request.server_id,
            summary.SerializeToString(),
            _checked(request.trajectory) if inline else b"",
            request.trajectory_upload_id,
            summary.oldest_version.epoch,
            summary.oldest_version.step,
        )
        if outcome == b"DUPLICATE":
            return cache_pb2.COMMIT_OUTCOME_DUPLICATE
        return cache_pb2.COMMIT_OUTCOME_COMMITTED

    async def fail(self, request: cache_pb2.FailRequest) -> cache_pb2.FailResponse:
        """Queue a failed sample again, or set it aside for good."""
        kind = common_pb2.FailureKind.Name(request.failure.kind).removeprefix("FAILURE_KIND_")
        if request.failure.kind == common_pb2.FAILURE_KIND_UNSPECIFIED:
            raise InvalidArgumentError("a failure has a kind")
        reason = f"{request.server_id}: {kind}: {request.failure.message[:1000]}"
        requeued, fails = await self._run(
            "fail",
            request.lease.sample_id,
            request.lease.token,
            kind,
            reason,
            int(request.retryable),
            _check_id("server_id", request.server_id),
        )
        return cache_pb2.FailResponse(requeued=bool(requeued), attempts=fails)

    async def take_batch(self, request: cache_pb2.TakeBatchRequest) -> cache_pb2.TakeBatchResponse:
        """Assign the batch of a step, or return the one assigned before, bit for bit."""
        assigned, ready, groups = await self._run(
            "take_batch", request.fence.epoch, request.fence.token, request.step
        )
        if not assigned:
            return cache_pb2.TakeBatchResponse(ready_groups=ready)
        batch = cache_pb2.TakeBatchResponse(
            assigned=True, groups=[_assigned_group(group) for group in groups]
        )
        key = f"assignments/{request.step:08d}"
        data = batch.SerializeToString(deterministic=True)
        written = await asyncio.to_thread(self._objects.put_if_absent, key, data)
        if not written:
            data = await asyncio.to_thread(self._objects.get, key)
        return cache_pb2.TakeBatchResponse.FromString(data)

    async def payload(self, sample_id: str) -> common_pb2.Payload:
        """Return a committed trajectory's payload."""
        with redis_errors():
            data = await self._redis.get(f"{self._prefix}payload:{sample_id}")
        if data is None:
            raise NotFoundError(f"sample {sample_id!r} has no trajectory here")
        return common_pb2.Payload.FromString(data)

    async def commit_step(self, fence: cache_pb2.Fence, step: int) -> int:
        """Retire all batches up to a step; returns the samples trained so far."""
        return await self._run("commit_step", fence.epoch, fence.token, step)

    async def collect_eval(self, eval_id: str) -> cache_pb2.CollectEvalResponse:
        """Return an evaluation's finished samples."""
        total, still_open, rows = await self._run("collect_eval", eval_id)
        return cache_pb2.CollectEvalResponse(
            done=int(still_open) == 0,
            num_samples=int(total),
            samples=[_eval_sample(row) for row in rows],
        )

    async def release_eval(self, eval_id: str) -> None:
        """Forget an evaluation and its payloads."""
        await self._run("release_eval", eval_id)

    async def stats(self) -> cache_pb2.GetStatsResponse:
        """Return the accounting identity, read atomically."""
        counts, totals, failures, lineage, *more = await self._run("stats")
        ready, partials, capacity, outstanding, latest, last_failure = more
        with redis_errors():
            memory = await server_info(self._redis, self._run_id, "memory")
        number, total, by_kind = _numbers(counts), _numbers(totals), _numbers(failures)
        living = {lineage[i].decode(): lineage[i + 1] for i in range(0, len(lineage), 2)}
        response = cache_pb2.GetStatsResponse(
            counts=cache_pb2.SampleCounts(**number),
            partials=partials,
            ready_groups=ready,
            outstanding_groups=outstanding,
            free_groups=max(0, capacity - outstanding),
            committed_step=int(living.get("committed_step", 0)),
            assigned_step=int(living.get("assigned_step", 0)),
            epoch=int(living.get("epoch", 0)),
            used_memory_bytes=memory["used_memory"],
            failures=by_kind,
            eval_samples_open=total.get("eval_open", 0),
            duplicate_commits=total.get("duplicates", 0),
            expired_leases=total.get("expired", 0),
            last_failure=last_failure.decode(),
        )
        if latest:
            response.latest_version.CopyFrom(wire.Version.parse(latest.decode()).proto())
        return response


def _numbers(flat: list[bytes]) -> dict[str, int]:
    return {flat[i].decode(): int(flat[i + 1]) for i in range(0, len(flat), 2)}


def _checked(payload: common_pb2.Payload) -> bytes:
    wire.check_payload(payload)
    if payload.compression not in (common_pb2.COMPRESSION_NONE, common_pb2.COMPRESSION_ZSTD):
        raise InvalidArgumentError(f"unknown compression {payload.compression}")
    if payload.uncompressed_bytes > wire.MAX_DECOMPRESSED_BYTES:
        raise InvalidArgumentError(f"payload claims {payload.uncompressed_bytes} bytes")
    if not payload.data:
        raise DataLossError("the payload is empty")
    return payload.SerializeToString()


def _check_group(group: common_pb2.Group) -> None:
    _check_id("group_id", group.group_id)
    if not 1 <= group.num_samples <= _MAX_GROUP_SIZE:
        raise InvalidArgumentError(
            f"{group.group_id}: num_samples is {group.num_samples}, not 1 to {_MAX_GROUP_SIZE}"
        )
    if group.purpose == common_pb2.PURPOSE_EVAL:
        _check_id("eval_id", group.eval_id)
    elif group.purpose != common_pb2.PURPOSE_TRAIN:
        raise InvalidArgumentError(f"{group.group_id}: unknown purpose {group.purpose}")
    elif group.num_samples < 2:
        raise InvalidArgumentError(f"{group.group_id}: a training group has at least 2 samples")
    elif group.HasField("pinned_version"):
        raise InvalidArgumentError(f"{group.group_id}: only evaluation groups may be pinned")
    if not group.task.env_id or not group.task.task_id:
        raise InvalidArgumentError(f"{group.group_id}: the task has no env_id or task_id")


def _lease_of(row: list[Any]) -> cache_pb2.SampleLease:
    sample, token, group, partial, attempt, expires = row
    lease = cache_pb2.SampleLease(
        sample_id=sample.decode(),
        token=int(token),
        group=common_pb2.Group.FromString(group),
        index=int(sample.rpartition(b"/")[2]),
        attempt=int(attempt),
    )
    if partial:
        lease.partial.ParseFromString(partial)
    lease.expires.FromMilliseconds(int(float(expires)))
    return lease


def _assigned_group(row: list[Any]) -> cache_pb2.AssignedGroup:
    gid, sequence, samples = row
    return cache_pb2.AssignedGroup(
        group_id=gid.decode(),
        sequence=int(sequence),
        samples=[
            cache_pb2.AssignedSample(
                sample_id=sample.decode(),
                summary=cache_pb2.SampleSummary.FromString(summary),
                staleness=int(staleness),
            )
            for sample, summary, staleness in samples
        ],
    )


def _eval_sample(row: list[Any]) -> cache_pb2.AssignedSample:
    sample, summary, failure, reason = row
    done = cache_pb2.AssignedSample(sample_id=sample.decode())
    if failure:
        kind = f"FAILURE_KIND_{failure.decode()}"
        done.summary.failure.CopyFrom(common_pb2.Failure(kind=kind, message=reason.decode()))
    else:
        done.summary.ParseFromString(summary)
    return done
