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

import numpy as np
import zstandard

from moera.errors import DataLossError

_LEVEL = 1
_ESCAPE = 0xFFFF


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


def _unplanes(data: bytes, count: int, dtype: np.dtype) -> np.ndarray:
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


def changed_indices(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the sorted indices where two arrays of bits differ.

    Words of 8 bytes are compared first: where little changed, most of them are equal.
    """
    per_word = 8 // old.dtype.itemsize
    whole = len(old) // per_word * per_word
    words = np.flatnonzero(old[:whole].view("<u8") != new[:whole].view("<u8"))
    if 4 * len(words) * per_word > len(old):
        return np.flatnonzero(old != new)
    candidates = (words[:, None] * per_word + np.arange(per_word)).reshape(-1)
    found = candidates[old[candidates] != new[candidates]]
    rest = np.flatnonzero(old[whole:] != new[whole:]) + whole
    return np.concatenate([found, rest]) if len(rest) else found


def encode_delta(old: np.ndarray, new: np.ndarray, changed: np.ndarray) -> bytes:
    """Encode what changed from `old` to `new`."""
    gaps = np.diff(changed, prepend=0)
    escaped = gaps >= _ESCAPE
    short = np.where(escaped, _ESCAPE, gaps).astype("<u2")
    difference = new[changed] - old[changed]  # unsigned: wraps modulo 2^width
    head = np.array([len(changed), escaped.sum()], "<u8").tobytes()
    return _compress(
        head + _planes(short) + gaps[escaped].astype("<u8").tobytes() + _planes(_zigzag(difference))
    )


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
    gaps_end, escapes_end = 16 + 2 * count, 16 + 2 * count + 8 * escapes
    gaps = _unplanes(raw[16:gaps_end], count, np.dtype("<u2")).astype(np.int64)
    marked = gaps == _ESCAPE
    if np.count_nonzero(marked) != escapes:
        raise DataLossError("a delta's escapes do not match its gaps")
    far = np.frombuffer(raw[gaps_end:escapes_end], "<u8")
    # Checked before they are summed: a sum that wraps around could land inside again.
    if escapes and int(far.max()) >= len(old):
        raise DataLossError("a delta leaves its slice")
    gaps[marked] = far
    index = np.cumsum(gaps)
    if count and (int(index[-1]) >= len(old) or (gaps[1:] == 0).any()):
        raise DataLossError("a delta leaves its slice")
    new = old.copy()
    new[index] += _unzigzag(_unplanes(raw[escapes_end:], count, old.dtype))
    return new


def _zigzag(difference: np.ndarray) -> np.ndarray:
    """Map small positive and negative differences to small numbers."""
    signed = difference.view(f"<i{difference.dtype.itemsize}")
    return ((signed << 1) ^ (signed >> (8 * difference.dtype.itemsize - 1))).view(difference.dtype)


def _unzigzag(coded: np.ndarray) -> np.ndarray:
    one = coded.dtype.type(1)
    return (coded >> one) ^ (~(coded & one) + one)
