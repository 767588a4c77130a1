"""Decoding a version's slices into tensors; every digest is checked before anything is used."""

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from moera.errors import DataLossError
from moera.v1 import cache_pb2
from moera.weights import codec
from moera.weights.manifest import check_slice, digest
from moera.wire import numpy_dtype


def decode(
    slices: Iterable[cache_pb2.Slice],
    chunk: Callable[[bytes], bytes],
    base: Mapping[str, np.ndarray] | None,
) -> dict[str, np.ndarray]:
    """Return every tensor of a version as a new array (bfloat16 as uint16 bits).

    Args:
        chunk: returns a chunk's bytes by digest.
        base: tensors of the base version, for delta and unchanged slices; never changed.

    Raises:
        DataLossError: bytes do not match a digest, a slice is malformed, or a tensor is not
            covered exactly once.
    """
    tensors: dict[str, np.ndarray] = {}
    covered: dict[str, int] = {}
    for part in slices:
        count = check_slice(part)
        shape = tuple(part.full_shape)
        dtype = numpy_dtype(part.dtype)
        tensor = tensors.setdefault(part.name, np.zeros(shape, dtype))
        if tensor.shape != shape or tensor.dtype != dtype:
            raise DataLossError(f"slices of {part.name} disagree about its shape or type")
        box = tuple(
            slice(offset, offset + extent)
            for offset, extent in zip(part.offset, part.extent, strict=True)
        )
        bits = _bits(part, count, chunk, _base_bits(part, box, base))
        if digest(np.ascontiguousarray(bits).data) != part.digest:
            raise DataLossError(f"slice of {part.name} does not match its digest")
        tensor[box] = bits.view(dtype).reshape(tuple(part.extent))
        covered[part.name] = covered.get(part.name, 0) + count
    for name, count in covered.items():
        if count != math.prod(tensors[name].shape):
            raise DataLossError(f"slices of {name} do not cover it exactly once")
    return tensors


def _base_bits(
    part: cache_pb2.Slice, box: tuple[slice, ...], base: Mapping[str, np.ndarray] | None
) -> np.ndarray | None:
    if part.encoding == cache_pb2.SLICE_ENCODING_FULL:
        return None
    old = (base or {}).get(part.name)
    if old is None or old.shape != tuple(part.full_shape):
        raise DataLossError(f"slice of {part.name} builds on a base that lacks it")
    return codec.as_bits(old[box])


def _bits(
    part: cache_pb2.Slice, count: int, chunk: Callable[[bytes], bytes], old: np.ndarray | None
) -> np.ndarray:
    if part.encoding == cache_pb2.SLICE_ENCODING_UNCHANGED and old is not None:
        return old
    data = b"".join(chunk(ref.digest) for ref in part.chunks)
    if part.encoding == cache_pb2.SLICE_ENCODING_DELTA and old is not None:
        return codec.decode_delta(data, old)
    if part.encoding == cache_pb2.SLICE_ENCODING_FULL:
        return codec.decode_full(data, count, numpy_dtype(part.dtype).itemsize)
    raise DataLossError(f"slice of {part.name} has unknown encoding {part.encoding}")
