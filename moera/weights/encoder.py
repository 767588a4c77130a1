"""Encoding one rank's tensors as slices and chunks, against the version before."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from moera.v1 import cache_pb2
from moera.weights import codec
from moera.weights.manifest import CHUNK_BYTES, digest
from moera.wire import Version, wire_dtype

_DELTA_MAX_DENSITY = 0.5
"""Past this share of changed elements a delta is not tried: indices and differences together
are then about as large as the elements."""


@dataclass
class EncodedShard:
    """One rank's part of a version."""

    slices: list[cache_pb2.Slice]
    chunks: dict[bytes, bytes] = field(repr=False)
    """Digest to stored bytes; chunks of unchanged slices are not among them."""
    base: Version | None
    """What delta and unchanged slices build on; None makes it an anchor."""
    chain_length: int

    @property
    def stored_bytes(self) -> int:
        """Bytes that travel for this version."""
        return sum(len(data) for data in self.chunks.values())


class ShardEncoder:
    """Remembers the last version's bits. Tensors are whole (one rank holds all of each).

    `bfloat16` says that uint16 arrays hold bfloat16 bits.
    """

    def __init__(self, bfloat16: bool = False) -> None:
        self._bfloat16 = bfloat16
        self._base: Version | None = None
        self._bits: dict[str, np.ndarray] = {}
        self._chain_length = 0

    def encode(
        self, version: Version, tensors: Mapping[str, np.ndarray], *, anchor: bool
    ) -> EncodedShard:
        """Encode a version; `anchor` makes it independent of the one before."""
        anchor = anchor or self._base is None or self._bits.keys() != tensors.keys()
        slices, chunks, bits_of = [], {}, {}
        for name, array in tensors.items():
            bits = codec.as_bits(array).copy()
            old = None if anchor else self._bits[name]
            part = self._slice(name, array, bits, old, chunks)
            slices.append(part)
            bits_of[name] = bits
        independent = all(part.encoding == cache_pb2.SLICE_ENCODING_FULL for part in slices)
        base = None if independent else self._base
        self._chain_length = 0 if independent else self._chain_length + 1
        self._base, self._bits = version, bits_of
        return EncodedShard(slices, chunks, base, self._chain_length)

    def _slice(
        self,
        name: str,
        array: np.ndarray,
        bits: np.ndarray,
        old: np.ndarray | None,
        chunks: dict[bytes, bytes],
    ) -> cache_pb2.Slice:
        bfloat16 = self._bfloat16 and array.dtype == np.uint16
        part = cache_pb2.Slice(
            name=name,
            dtype=wire_dtype(array.dtype, bfloat16=bfloat16),
            full_shape=array.shape,
            offset=[0] * array.ndim,
            extent=array.shape,
            encoding=cache_pb2.SLICE_ENCODING_FULL,
            decoded_bytes=bits.nbytes,
            digest=digest(bits.data),
        )
        data = self._delta(part, bits, old) if old is not None else None
        if part.encoding == cache_pb2.SLICE_ENCODING_UNCHANGED:
            return part
        if data is None:
            data = codec.encode_full(bits)
        for start in range(0, len(data), CHUNK_BYTES):
            piece = data[start : start + CHUNK_BYTES]
            name_of_piece = digest(piece)
            chunks[name_of_piece] = piece
            part.chunks.add(digest=name_of_piece, stored_bytes=len(piece))
        return part

    def _delta(self, part: cache_pb2.Slice, bits: np.ndarray, old: np.ndarray) -> bytes | None:
        changed = codec.changes(old, bits)
        if not len(changed.positions):
            part.encoding = cache_pb2.SLICE_ENCODING_UNCHANGED
            return None
        if len(changed.positions) > _DELTA_MAX_DENSITY * len(bits):
            return None
        part.encoding = cache_pb2.SLICE_ENCODING_DELTA
        part.num_changed = len(changed.positions)
        return codec.encode_delta(changed)
