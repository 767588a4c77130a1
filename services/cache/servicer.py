"""Proto to domain and back for both services of the cache; long polls live here."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import grpc

from moera import telemetry
from moera.errors import InvalidArgumentError
from moera.rpc import MAX_PAYLOAD_BYTES
from moera.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from moera.wire import MAX_DECOMPRESSED_BYTES, Version
from services.cache.experience import ExperienceStore
from services.cache.versions import VersionStore

_commits = telemetry.counter("moera.cache.commits")
_leases = telemetry.counter("moera.cache.leases")
_payload_bytes = telemetry.counter("moera.cache.payload_bytes")

Context = grpc.aio.ServicerContext
ResultT = TypeVar("ResultT")


class ExperienceServicer(cache_pb2_grpc.ExperienceServiceServicer):
    """moera.v1.ExperienceService."""

    def __init__(self, store: ExperienceStore, poll_s: float) -> None:
        self._store = store
        self._poll_s = poll_s

    async def _until(
        self, read: Callable[[], Awaitable[ResultT]], good: Callable[[ResultT], bool], wait_ms: int
    ) -> ResultT:
        end = time.monotonic() + wait_ms / 1e3
        while True:
            result = await read()
            left = end - time.monotonic()
            if good(result) or left <= 0:
                return result
            await asyncio.sleep(min(self._poll_s, left))

    async def OpenLineage(self, request: cache_pb2.OpenLineageRequest, context: Context):
        """Issue a new epoch and fence."""
        return await self._store.open_lineage(request)

    async def Enqueue(self, request: cache_pb2.EnqueueRequest, context: Context):
        """Accept groups up to the staleness budget."""
        return await self._store.enqueue(request.fence, request.groups)

    async def Lease(self, request: cache_pb2.LeaseRequest, context: Context):
        """Hand out pending samples; long poll."""
        leases = await self._until(lambda: self._store.lease(request), bool, request.wait_ms)
        _leases.add(len(leases))
        return cache_pb2.LeaseResponse(leases=leases)

    async def Renew(self, request: cache_pb2.RenewRequest, context: Context):
        """Extend leases."""
        lost = await self._store.renew(request.leases, request.ttl_ms)
        return cache_pb2.RenewResponse(lost=lost)

    async def SavePartial(self, request: cache_pb2.SavePartialRequest, context: Context):
        """Store progress."""
        await self._store.save_partial(request)
        return cache_pb2.SavePartialResponse()

    async def UploadPayload(
        self, request_iterator: AsyncIterator[cache_pb2.UploadPayloadRequest], context: Context
    ):
        """Assemble a payload from chunks."""
        header: common_pb2.Payload | None = None
        upload_id, pieces, size = "", [], 0
        async for request in request_iterator:
            if header is None:
                if not request.HasField("header"):
                    raise InvalidArgumentError("the first chunk of an upload carries its header")
                header, upload_id = request.header, request.upload_id
            if request.index != len(pieces):
                raise InvalidArgumentError(
                    f"upload {upload_id}: chunk {request.index} came, {len(pieces)} was expected"
                )
            pieces.append(request.data)
            size += len(request.data)
            if size > MAX_DECOMPRESSED_BYTES:
                raise InvalidArgumentError(f"upload {upload_id} is larger than 1 GiB")
        if header is None:
            raise InvalidArgumentError("an upload has at least one chunk")
        await self._store.store_upload(upload_id, header, b"".join(pieces))
        return cache_pb2.UploadPayloadResponse(stored_bytes=size)

    async def Commit(self, request: cache_pb2.CommitRequest, context: Context):
        """Store a finished trajectory."""
        outcome = await self._store.commit(request)
        _commits.add(1, outcome=cache_pb2.CommitOutcome.Name(outcome))
        _payload_bytes.add(len(request.trajectory.data))
        return cache_pb2.CommitResponse(outcome=outcome)

    async def Fail(self, request: cache_pb2.FailRequest, context: Context):
        """Report a failure."""
        return await self._store.fail(request)

    async def TakeBatch(self, request: cache_pb2.TakeBatchRequest, context: Context):
        """Assign the batch of a step; long poll."""
        return await self._until(
            lambda: self._store.take_batch(request), lambda b: b.assigned, request.wait_ms
        )

    async def FetchTrajectories(
        self, request: cache_pb2.FetchTrajectoriesRequest, context: Context
    ) -> AsyncIterator[cache_pb2.FetchTrajectoriesResponse]:
        """Stream payloads, large ones in parts."""
        for sample_id in request.sample_ids:
            payload = await self._store.payload(sample_id)
            data = payload.data
            payload.data = data[:MAX_PAYLOAD_BYTES]
            for start in range(0, len(data), MAX_PAYLOAD_BYTES):
                if start:
                    piece = data[start : start + MAX_PAYLOAD_BYTES]
                    payload = common_pb2.Payload(data=piece)
                yield cache_pb2.FetchTrajectoriesResponse(
                    sample_id=sample_id,
                    trajectory=payload,
                    last=start + MAX_PAYLOAD_BYTES >= len(data),
                )

    async def CommitStep(self, request: cache_pb2.CommitStepRequest, context: Context):
        """Retire batches."""
        trained = await self._store.commit_step(request.fence, request.step)
        return cache_pb2.CommitStepResponse(trained_samples=trained)

    async def CollectEval(self, request: cache_pb2.CollectEvalRequest, context: Context):
        """Return an evaluation; long poll."""
        return await self._until(
            lambda: self._store.collect_eval(request.eval_id), lambda e: e.done, request.wait_ms
        )

    async def ReleaseEval(self, request: cache_pb2.ReleaseEvalRequest, context: Context):
        """Forget an evaluation."""
        await self._store.release_eval(request.eval_id)
        return cache_pb2.ReleaseEvalResponse()

    async def GetStats(self, request: cache_pb2.GetStatsRequest, context: Context):
        """Read the accounting identity."""
        return await self._store.stats()


class CheckpointServicer(cache_pb2_grpc.CheckpointServiceServicer):
    """moera.v1.CheckpointService."""

    def __init__(self, store: VersionStore, poll_s: float) -> None:
        self._store = store
        self._poll_s = poll_s

    async def FindMissingChunks(
        self, request: cache_pb2.FindMissingChunksRequest, context: Context
    ):
        """Tell which chunks must still be sent."""
        missing = await self._store.missing(request.digests)
        return cache_pb2.FindMissingChunksResponse(missing=missing)

    async def PutChunks(
        self, request_iterator: AsyncIterator[cache_pb2.PutChunksRequest], context: Context
    ):
        """Store chunks."""
        stored = 0
        async for request in request_iterator:
            await self._store.put_chunk(request.chunk, request.durable)
            stored += 1
        return cache_pb2.PutChunksResponse(stored=stored)

    async def StageShard(self, request: cache_pb2.StageShardRequest, context: Context):
        """Stage one rank's slices."""
        await self._store.stage(request)
        return cache_pb2.StageShardResponse()

    async def PublishVersion(self, request: cache_pb2.PublishVersionRequest, context: Context):
        """Make a version visible."""
        return await self._store.publish(request.fence, request.header)

    async def GetManifest(
        self, request: cache_pb2.GetManifestRequest, context: Context
    ) -> AsyncIterator[cache_pb2.GetManifestResponse]:
        """Stream a manifest."""
        version = Version.of(request.version) if request.HasField("version") else None
        async for part in self._store.manifest(version, request.header_only):
            yield part

    async def GetChunks(
        self, request: cache_pb2.GetChunksRequest, context: Context
    ) -> AsyncIterator[cache_pb2.GetChunksResponse]:
        """Stream chunks in request order."""
        for name in request.digests:
            yield cache_pb2.GetChunksResponse(chunk=await self._store.chunk(name))

    async def WatchVersions(
        self, request: cache_pb2.WatchVersionsRequest, context: Context
    ) -> AsyncIterator[cache_pb2.WatchVersionsResponse]:
        """Stream the latest version whenever it changes."""
        seen = Version.of(request.after) if request.HasField("after") else Version(0, 0)
        while True:
            latest = await self._store.latest()
            if latest and latest > seen:
                seen = latest
                yield cache_pb2.WatchVersionsResponse(version=latest.proto())
            await asyncio.sleep(self._poll_s)
