"""The version store: weight versions, visible only when every byte of them is.

    put chunks -> stage shards -> publish (one transition: checks, visible, latest pointer)

- Chunks are immutable and shared between versions; a count of the versions that use a chunk
  decides when it goes.
- Versions before the last anchor but one are retired when a new anchor is published: a server
  that is pulling one of them starts again from the newest.
- Chunks of durable versions are in the object store too, and are read from there when Redis has
  lost them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import redis.asyncio as aioredis

from moera.errors import DataLossError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from moera.objects import ObjectStore
from moera.v1 import cache_pb2
from moera.weights.manifest import digest, target_digest
from moera.wire import Version
from services.cache.config import CacheSection
from services.cache.keys import prefix
from services.cache.transitions import Transitions, redis_errors

_MAX_CHUNK_BYTES = 4 * 2**20
_PART_BYTES = 2 * 2**20
_STAGED_TTL_S = 3600


class VersionStore:
    """Weight versions of one run."""

    def __init__(
        self, redis: aioredis.Redis, run_id: str, objects: ObjectStore, section: CacheSection
    ) -> None:
        # Typed loosely: redis-py's types do not know that replies are bytes here.
        self._redis: Any = redis
        self._objects = objects
        self._prefix = prefix(run_id)
        self._run = Transitions(redis, run_id, section).run

    def _chunk_key(self, name: bytes) -> str:
        return f"{self._prefix}chunk:{name.hex()}"

    async def missing(self, digests: Sequence[bytes]) -> list[bytes]:
        """Return the digests whose chunks are not stored."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in digests:
                pipe.exists(self._chunk_key(name))
            with redis_errors():
                found = await pipe.execute()
        return [name for name, there in zip(digests, found, strict=True) if not there]

    async def put_chunk(self, chunk: cache_pb2.Chunk, durable: bool) -> None:
        """Store a chunk; it expires unless a version that uses it is published.

        Raises:
            DataLossError: its bytes do not match its digest.
            InvalidArgumentError: it is empty or too large.
        """
        if not 0 < len(chunk.data) <= _MAX_CHUNK_BYTES:
            raise InvalidArgumentError(
                f"a chunk has {len(chunk.data)} bytes, not 1 to {_MAX_CHUNK_BYTES}"
            )
        if digest(chunk.data) != chunk.digest:
            raise DataLossError(f"chunk {chunk.digest.hex()} does not match its digest")
        if durable:
            key = f"weights/chunks/{chunk.digest.hex()}"
            await asyncio.to_thread(self._objects.put_if_absent, key, chunk.data)
        with redis_errors():
            await self._redis.set(
                self._chunk_key(chunk.digest), chunk.data, nx=True, ex=_STAGED_TTL_S
            )

    async def stage(self, request: cache_pb2.StageShardRequest) -> None:
        """Store one rank's slices of a version that is not visible yet."""
        if request.rank >= request.world_size:
            raise InvalidArgumentError(
                f"rank {request.rank} is not below world_size {request.world_size}"
            )
        names = list(dict.fromkeys(ref.digest for part in request.slices for ref in part.chunks))
        absent = await self.missing(names)
        if absent:
            raise FailedPreconditionError(
                f"{len(absent)} chunks of this shard are not stored; put them first"
            )
        shard = cache_pb2.ShardPart(rank=request.rank, slices=request.slices)
        await self._run(
            "stage_shard",
            request.fence.epoch,
            request.fence.token,
            str(Version.of(request.version)),
            request.rank,
            request.world_size,
            shard.SerializeToString(),
        )

    async def publish(
        self, fence: cache_pb2.Fence, header: cache_pb2.ManifestHeader
    ) -> cache_pb2.PublishVersionResponse:
        """Make a staged version, or an alias, visible and the latest.

        Raises:
            AbortedError: the fence is dead, or the version is not newer than the latest.
            AlreadyExistsError: the version exists with another digest.
            FailedPreconditionError: a shard or the base is missing, or the digest differs.
        """
        version = Version.of(header.version)
        if version.epoch != fence.epoch:
            raise InvalidArgumentError(f"version {version} is not of lineage {fence.epoch}")
        slices = [] if header.HasField("alias_of") else await self._staged(header)
        stored = cache_pb2.ManifestHeader()
        stored.CopyFrom(header)
        stored.published.GetCurrentTime()
        builds_on = ""
        if header.HasField("alias_of"):
            builds_on = str(Version.of(header.alias_of))
        elif header.HasField("base_version"):
            builds_on = str(Version.of(header.base_version))
        names = dict.fromkeys(ref.digest.hex() for part in slices for ref in part.chunks)
        outcome = await self._run(
            "publish_version",
            fence.epoch,
            fence.token,
            str(version),
            builds_on,
            header.target_digest.hex(),
            stored.SerializeToString(),
            *names,
        )
        return cache_pb2.PublishVersionResponse(already_published=outcome == b"AGAIN")

    async def _staged(self, header: cache_pb2.ManifestHeader) -> list[cache_pb2.Slice]:
        shards = await self._shards(Version.of(header.version))
        if len(shards) != header.world_size:
            raise FailedPreconditionError(
                f"version {Version.of(header.version)} has {len(shards)} of "
                f"{header.world_size} shards staged"
            )
        slices = [part for shard in shards for part in shard.slices]
        if target_digest(slices) != header.target_digest:
            raise FailedPreconditionError("the staged slices do not match target_digest")
        return slices

    async def _shards(self, version: Version) -> list[cache_pb2.ShardPart]:
        with redis_errors():
            found = await self._redis.hgetall(f"{self._prefix}shards:{version}")
        ranks = sorted(found, key=int)
        return [cache_pb2.ShardPart.FromString(found[rank]) for rank in ranks]

    async def latest(self) -> Version | None:
        """Return the latest version, or None before the first."""
        with redis_errors():
            found = await self._redis.get(f"{self._prefix}latest")
        return None if found is None else Version.parse(found.decode())

    async def manifest(
        self, version: Version | None, header_only: bool
    ) -> AsyncIterator[cache_pb2.GetManifestResponse]:
        """Yield a version's header, then its slices in parts."""
        version = version or await self.latest()
        if version is None:
            raise NotFoundError("no weight version is published yet")
        with redis_errors():
            data = await self._redis.get(f"{self._prefix}manifest:{version}")
        if data is None:
            raise NotFoundError(f"no weight version {version}")
        header = cache_pb2.ManifestHeader.FromString(data)
        yield cache_pb2.GetManifestResponse(header=header)
        if header_only or header.HasField("alias_of"):
            return
        for shard in await self._shards(version):
            for slices in _parts(shard.slices):
                part = cache_pb2.ShardPart(rank=shard.rank, slices=slices)
                yield cache_pb2.GetManifestResponse(shard=part)

    async def chunk(self, name: bytes) -> cache_pb2.Chunk:
        """Return a chunk from Redis, else from the object store."""
        with redis_errors():
            data = await self._redis.get(self._chunk_key(name))
        if data is None:
            data = await asyncio.to_thread(self._objects.get, f"weights/chunks/{name.hex()}")
        return cache_pb2.Chunk(digest=name, data=data)


def _parts(slices: Iterable[cache_pb2.Slice]) -> Iterable[list[cache_pb2.Slice]]:
    part: list[cache_pb2.Slice] = []
    size = 0
    for each in slices:
        part.append(each)
        size += each.ByteSize()
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
