"""One slice's bytes: full or delta, in byte planes, zstd level 1.

Elements are handled as unsigned integers of their width ("bits"), so that every dtype is
lossless and bfloat16 needs no special case.

Full:   zstd(planes(bits))
Delta:  zstd(u64 count | u64 escapes | u16 gaps in planes | u64 escapes | zigzag differences in
        planes), where gaps are the distances between changed indices (65535 stands for the next
        escape value) and differences are modulo 2^width.

Byte planes put the bytes of equal significance side by side; source of the idea: the shuffle
filter of HDF5 and Blosc.
"""

from typing import NamedTuple

import numpy as np
import zstandard

from moera.errors import DataLossError

_LEVEL = 1
_ESCAPE = 0xFFFF
_BLOCK = 2**18


def as_bits(array: np.ndarray) -> np.ndarray:
    """Return the elements as a flat array of unsigned little-endian integers."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"<u{array.dtype.itemsize}")


def _planes(bits: np.ndarray) -> bytes:
    # Shifts and narrowing casts run at several times the speed of a transposition.
    width = bits.dtype.itemsize
    planes = np.empty((width, len(bits)), np.uint8)
    for place in range(width):
        np.copyto(planes[place], bits >> bits.dtype.type(8 * place), casting="unsafe")
    return planes.tobytes()


def _unplanes(data: bytes | memoryview, count: int, dtype: np.dtype) -> np.ndarray:
    planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, count)
    bits = planes[0].astype(dtype)
    for place in range(1, dtype.itemsize):
        bits |= planes[place].astype(dtype) << dtype.type(8 * place)
    return bits


def _compress(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def _decompress(data: bytes, limit: int) -> bytes:
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= limit:
            raise DataLossError(f"a slice claims {size} bytes, at most {limit} are possible")
        return zstandard.ZstdDecompressor().decompress(
            data, max_output_size=size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DataLossError(f"a slice does not decompress: {error}") from None


def encode_full(bits: np.ndarray) -> bytes:
    """Encode all elements."""
    return _compress(_planes(bits))


def decode_full(data: bytes, count: int, itemsize: int) -> np.ndarray:
    """Decode `count` elements.

    Raises:
        DataLossError: the bytes are no full slice of that size.
    """
    raw = _decompress(data, count * itemsize)
    if len(raw) != count * itemsize:
        raise DataLossError(f"a slice holds {len(raw)} bytes, expected {count * itemsize}")
    return _unplanes(raw, count, np.dtype(f"<u{itemsize}"))


class Changes(NamedTuple):
    """What differs between two arrays of bits."""

    positions: np.ndarray
    """int64 [C], rising."""
    difference: np.ndarray
    """new - old modulo 2^width, as unsigned integers [C]."""


def changes(old: np.ndarray, new: np.ndarray) -> Changes:
    """Return what changed from `old` to `new`, two arrays of bits of one length and type."""
    positions, difference = [np.empty(0, np.int64)], [np.empty(0, old.dtype)]
    # Block by block: the differences of one block stay in the processor's cache.
    for start in range(0, len(old), _BLOCK):
        apart = new[start : start + _BLOCK] - old[start : start + _BLOCK]
        where = np.flatnonzero(apart != 0)
        positions.append(where + start)
        difference.append(apart[where])
    return Changes(np.concatenate(positions), np.concatenate(difference))


def encode_delta(changed: Changes) -> bytes:
    """Encode changes."""
    gaps = np.diff(changed.positions, prepend=0)
    short = np.minimum(gaps, _ESCAPE).astype("<u2")
    escapes = gaps[short == _ESCAPE].astype("<u8")
    head = np.array([len(gaps), len(escapes)], "<u8").tobytes()
    planes = _planes(short), escapes.tobytes(), _planes(_zigzag(changed.difference))
    return _compress(b"".join((head, *planes)))


def decode_delta(data: bytes, old: np.ndarray) -> np.ndarray:
    """Apply a delta to `old` and return the new elements; `old` is not changed.

    Raises:
        DataLossError: the bytes are no delta for an array of that size.
    """
    width = old.dtype.itemsize
    raw = _decompress(data, 16 + len(old) * (2 + 8 + width))
    if len(raw) < 16:
        raise DataLossError("a delta has no head")
    count, escapes = (int(value) for value in np.frombuffer(raw[:16], "<u8"))
    if len(raw) != 16 + count * (2 + width) + escapes * 8 or count > len(old):
        raise DataLossError(f"a delta of {count} changes has {len(raw)} bytes")
    body = memoryview(raw)
    gaps_end, escapes_end = 16 + 2 * count, 16 + 2 * count + 8 * escapes
    short = _unplanes(body[16:gaps_end], count, np.dtype("<u2"))
    far = np.frombuffer(body[gaps_end:escapes_end], "<u8")
    index = _indices(short, far, len(old))
    return _applied(old, index, _unzigzag(_unplanes(body[escapes_end:], count, old.dtype)))


def _applied(old: np.ndarray, index: np.ndarray, difference: np.ndarray) -> np.ndarray:
    new = np.empty_like(old)
    starts = np.arange(0, len(old), _BLOCK)
    ends = np.searchsorted(index, starts + _BLOCK)
    begin = 0
    for start, end in zip(starts, ends, strict=True):
        block = new[start : start + _BLOCK]
        block[:] = old[start : start + _BLOCK]
        block[index[begin:end] - start] += difference[begin:end]
        begin = end
    return new


def _indices(short: np.ndarray, far: np.ndarray, length: int) -> np.ndarray:
    """Return int64 indices from gaps [C] and escapes [E], all of them below `length`."""
    marked = np.flatnonzero(short == _ESCAPE)
    if len(marked) != len(far):
        raise DataLossError("a delta's escapes do not match its gaps")
    # Checked before they are summed: a sum that wraps around could land inside again.
    if len(far) and int(far.max()) >= length:
        raise DataLossError("a delta leaves its slice")
    gaps = short.astype(np.int64)
    gaps[marked] = far
    index = np.cumsum(gaps, out=gaps)
    if len(index) and (int(index[-1]) >= length or not short[1:].all()):
        raise DataLossError("a delta leaves its slice")
    return index


def _zigzag(difference: np.ndarray) -> np.ndarray:
    """Map small positive and negative differences to small numbers."""
    signed = difference.view(f"<i{difference.dtype.itemsize}")
    return ((signed << 1) ^ (signed >> (8 * difference.dtype.itemsize - 1))).view(difference.dtype)


def _unzigzag(coded: np.ndarray) -> np.ndarray:
    one = coded.dtype.type(1)
    return (coded >> one) ^ (~(coded & one) + one)
