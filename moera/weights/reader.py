"""The reader's side: pull a version, from what is already held or from its anchor on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from moera import rpc
from moera.errors import DataLossError
from moera.v1 import cache_pb2, cache_pb2_grpc
from moera.weights.decoder import decode
from moera.weights.manifest import digest, target_digest
from moera.wire import Version

_DEADLINE_S = 120.0
_CHUNKS_PER_REQUEST = 256
_MAX_CHAIN = 1_000


@dataclass(frozen=True)
class Snapshot:
    """A verified version."""

    version: Version
    source: Version
    """Version whose weights these are: an alias' target, else `version` itself."""
    header: cache_pb2.ManifestHeader
    tensors: Mapping[str, np.ndarray] = field(repr=False)
    """Name to array; bfloat16 as uint16 bits."""


class WeightReader:
    """Pulls versions. Holds the last snapshot, which deltas are applied to."""

    def __init__(self, stub: cache_pb2_grpc.CheckpointServiceStub) -> None:
        self._stub = stub
        self._held: Snapshot | None = None

    async def latest_header(self) -> cache_pb2.ManifestHeader:
        """Return the newest version's header, or raise NotFoundError before the first."""
        header, _ = await self._manifest(None, header_only=True)
        return header

    async def pull(self, version: Version | None = None) -> Snapshot:
        """Return a version (default: the latest), verified; it is held from then on.

        Raises:
            NotFoundError: no such version.
            DataLossError: bytes do not match a digest; what was held stays.
        """
        header, slices = await self._manifest(version)
        snapshot = await self._resolve(header, slices, 0)
        self._held = snapshot
        return snapshot

    async def _resolve(
        self, header: cache_pb2.ManifestHeader, slices: list[cache_pb2.Slice], depth: int
    ) -> Snapshot:
        version = Version.of(header.version)
        if depth > _MAX_CHAIN:
            raise DataLossError(f"version {version} builds on more than {_MAX_CHAIN} others")
        if header.HasField("alias_of"):
            source = await self._at(Version.of(header.alias_of), depth)
            return Snapshot(version, source.source, header, source.tensors)
        if target_digest(slices) != header.target_digest:
            raise DataLossError(f"the slices of version {version} do not match its digest")
        base = None
        if header.HasField("base_version"):
            base = (await self._at(Version.of(header.base_version), depth)).tensors
        chunks = await self._chunks(
            list(dict.fromkeys(ref.digest for part in slices for ref in part.chunks))
        )
        return Snapshot(version, version, header, decode(slices, chunks.__getitem__, base))

    async def _at(self, version: Version, depth: int) -> Snapshot:
        held = self._held
        if held is not None and version in (held.version, held.source):
            return held
        header, slices = await self._manifest(version)
        return await self._resolve(header, slices, depth + 1)

    async def _manifest(
        self, version: Version | None, header_only: bool = False
    ) -> tuple[cache_pb2.ManifestHeader, list[cache_pb2.Slice]]:
        request = cache_pb2.GetManifestRequest(header_only=header_only)
        if version is not None:
            request.version.CopyFrom(version.proto())
        header, slices = None, []
        async for part in rpc.stream(self._stub.GetManifest, request, deadline_s=_DEADLINE_S):
            if part.WhichOneof("part") == "header":
                header = part.header
            else:
                slices.extend(part.shard.slices)
        if header is None:
            raise DataLossError("a manifest has no header")
        return header, slices

    async def _chunks(self, digests: list[bytes]) -> dict[bytes, bytes]:
        chunks: dict[bytes, bytes] = {}
        for start in range(0, len(digests), _CHUNKS_PER_REQUEST):
            wanted = digests[start : start + _CHUNKS_PER_REQUEST]
            request = cache_pb2.GetChunksRequest(digests=wanted)
            async for part in rpc.stream(self._stub.GetChunks, request, deadline_s=_DEADLINE_S):
                if digest(part.chunk.data) != part.chunk.digest:
                    raise DataLossError(f"chunk {part.chunk.digest.hex()} is damaged")
                chunks[part.chunk.digest] = part.chunk.data
        missing = set(digests) - chunks.keys()
        if missing:
            raise DataLossError(f"the cache lacks {len(missing)} chunks of this version")
        return chunks
