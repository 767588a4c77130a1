"""Manifests: which slices make a version, and the digest that proves it."""

import hashlib
import math
from collections.abc import Iterable

import xxhash

from moera.errors import DataLossError
from moera.v1 import cache_pb2
from moera.wire import numpy_dtype

CHUNK_BYTES = 4 * 2**20 - 4096
"""Largest chunk; with its envelope it stays under 4 MiB."""


def digest(data: bytes | memoryview) -> bytes:
    """Return the xxh3-128 digest that names a chunk or proves a decoded slice."""
    return xxhash.xxh3_128_digest(data)


def slice_order(part: cache_pb2.Slice) -> tuple[str, tuple[int, ...]]:
    """Return the sort key of a slice: name, then offset."""
    return part.name, tuple(part.offset)


def target_digest(slices: Iterable[cache_pb2.Slice]) -> bytes:
    """Return sha256 over the slice digests in name and offset order."""
    total = hashlib.sha256()
    for part in sorted(slices, key=slice_order):
        total.update(part.digest)
    return total.digest()


def check_slice(part: cache_pb2.Slice) -> int:
    """Return the slice's number of elements.

    Raises:
        DataLossError: its shape, type and sizes do not fit together.
    """
    axes = len(part.full_shape)
    if len(part.offset) != axes or len(part.extent) != axes:
        raise DataLossError(f"slice of {part.name}: offset, extent and shape differ in length")
    for full, offset, extent in zip(part.full_shape, part.offset, part.extent, strict=True):
        if offset < 0 or extent < 0 or offset + extent > full:
            raise DataLossError(f"slice of {part.name} leaves its tensor")
    count = math.prod(part.extent)
    if count * numpy_dtype(part.dtype).itemsize != part.decoded_bytes:
        raise DataLossError(f"slice of {part.name}: decoded_bytes does not fit its extent")
    return count
