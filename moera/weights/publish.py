"""The writer's side: chunks first, then the slices, then the header that makes all visible."""

from collections.abc import AsyncIterator

from moera import rpc
from moera.errors import AbortedError
from moera.v1 import cache_pb2, cache_pb2_grpc
from moera.weights.encoder import EncodedShard
from moera.weights.manifest import target_digest
from moera.wire import Version

_DEADLINE_S = 120.0


async def publish(
    stub: cache_pb2_grpc.CheckpointServiceStub,
    fence: cache_pb2.Fence,
    header: cache_pb2.ManifestHeader,
    shard: EncodedShard,
    *,
    durable: bool,
    patience_s: float,
) -> None:
    """Store and publish a version that one rank holds whole.

    Args:
        header: version, probe, model and traceparent; the rest is filled in here.
        durable: its chunks go to the object store too.
        patience_s: how long to try again while the cache is away.

    Raises:
        AbortedError: a newer lineage lives, or the version exists with other weights.
        MoeraError: the cache stayed away.
    """
    found = await rpc.call(
        stub.FindMissingChunks,
        cache_pb2.FindMissingChunksRequest(digests=list(shard.chunks)),
        deadline_s=_DEADLINE_S,
        patience_s=patience_s,
    )
    await _put(stub, {key: shard.chunks[key] for key in found.missing}, durable, patience_s)
    header.world_size = 1
    header.target_digest = target_digest(shard.slices)
    header.chain_length = shard.chain_length
    header.stored_bytes = shard.stored_bytes
    if shard.base is not None:
        header.base_version.CopyFrom(shard.base.proto())
    stage = cache_pb2.StageShardRequest(
        fence=fence, version=header.version, rank=0, world_size=1, slices=shard.slices
    )
    await rpc.call(stub.StageShard, stage, deadline_s=_DEADLINE_S, patience_s=patience_s)
    await publish_header(stub, fence, header, patience_s=patience_s)


async def publish_header(
    stub: cache_pb2_grpc.CheckpointServiceStub,
    fence: cache_pb2.Fence,
    header: cache_pb2.ManifestHeader,
    *,
    patience_s: float,
) -> None:
    """Make a staged version, or an alias of an older one, visible."""
    request = cache_pb2.PublishVersionRequest(fence=fence, header=header)
    await rpc.call(stub.PublishVersion, request, deadline_s=_DEADLINE_S, patience_s=patience_s)


async def _put(
    stub: cache_pb2_grpc.CheckpointServiceStub,
    chunks: dict[bytes, bytes],
    durable: bool,
    patience_s: float,
) -> None:
    async def requests() -> AsyncIterator[cache_pb2.PutChunksRequest]:
        for key, data in chunks.items():
            chunk = cache_pb2.Chunk(digest=key, data=data)
            yield cache_pb2.PutChunksRequest(chunk=chunk, durable=durable)

    if chunks:
        await rpc.call(
            lambda _request, timeout: stub.PutChunks(requests(), timeout=timeout),
            None,
            deadline_s=_DEADLINE_S,
            patience_s=patience_s,
        )


def alias_header(version: Version, of: Version) -> cache_pb2.ManifestHeader:
    """Return the header of a version whose weights are another's."""
    if version <= of:
        raise AbortedError(f"{version} cannot be an alias of {of}: versions only rise")
    return cache_pb2.ManifestHeader(version=version.proto(), alias_of=of.proto())
