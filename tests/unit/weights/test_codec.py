import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moera.errors import DataLossError
from moera.v1 import cache_pb2
from moera.weights import codec
from moera.weights.decoder import decode
from moera.weights.encoder import ShardEncoder
from moera.wire import Version

WIDTHS = st.sampled_from([1, 2, 4, 8])


@given(WIDTHS, st.integers(0, 2000), st.integers(0, 2**32 - 1))
def test_full_is_lossless(width: int, count: int, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 256, count * width, dtype=np.uint8)
    bits = bits.view(f"<u{width}")
    np.testing.assert_array_equal(codec.decode_full(codec.encode_full(bits), count, width), bits)


@given(WIDTHS, st.integers(1, 200_000), st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_delta_is_lossless_whatever_the_gaps(width, count, changes, seed) -> None:
    noise = np.random.default_rng(seed)
    old = noise.integers(0, 256, count * width, dtype=np.uint8).view(f"<u{width}")
    new = old.copy()
    where = noise.integers(0, count, changes)
    new[where] = noise.integers(0, 256, changes * width, dtype=np.uint8).view(f"<u{width}")
    before = old.copy()
    data = codec.encode_delta(old, new, codec.changed_indices(old, new))
    np.testing.assert_array_equal(codec.decode_delta(data, old), new)
    np.testing.assert_array_equal(old, before)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_slice_are_refused(data: bytes) -> None:
    with pytest.raises(DataLossError):
        codec.decode_full(data, 7, 4)
    with pytest.raises(DataLossError):
        codec.decode_delta(data, np.zeros(7, np.uint32))


def test_few_small_changes_travel_as_a_few_bytes() -> None:
    old = np.random.default_rng(0).integers(0, 2**16, 1_000_000, dtype=np.uint16)
    new = old.copy()
    new[::1000] += 1
    data = codec.encode_delta(old, new, codec.changed_indices(old, new))
    assert len(data) < len(codec.encode_full(new)) / 100


def test_the_encoder_chooses_unchanged_delta_or_full() -> None:
    encoder = ShardEncoder()
    old = {name: np.arange(1000, dtype=np.float32) for name in ("same", "few", "all")}
    encoder.encode(Version(1, 0), old, anchor=True)
    few = old["few"].copy()
    few[3] = 0.5
    new = {"same": old["same"], "few": few, "all": old["all"] + 1}
    shard = encoder.encode(Version(1, 1), new, anchor=False)
    assert [part.encoding for part in shard.slices] == [
        cache_pb2.SLICE_ENCODING_UNCHANGED,
        cache_pb2.SLICE_ENCODING_DELTA,
        cache_pb2.SLICE_ENCODING_FULL,
    ]
    assert (shard.base, shard.slices[1].num_changed) == (Version(1, 0), 1)
    for name, array in decode(shard.slices, shard.chunks.__getitem__, old).items():
        np.testing.assert_array_equal(array, new[name])


def test_a_slice_of_other_bytes_than_its_digest_is_refused() -> None:
    shard = ShardEncoder().encode(Version(1, 0), {"w": np.ones(9, np.float32)}, anchor=True)
    shard.slices[0].digest = bytes(16)
    with pytest.raises(DataLossError, match="does not match its digest"):
        decode(shard.slices, shard.chunks.__getitem__, None)
