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
    data = codec.encode_delta(codec.changes(old, new))
    np.testing.assert_array_equal(codec.decode_delta(data, old), new)
    np.testing.assert_array_equal(old, before)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_slice_are_refused(data: bytes) -> None:
    with pytest.raises(DataLossError):
        codec.decode_full(data, 7, 4)
    with pytest.raises(DataLossError):
        codec.decode_delta(data, np.zeros(7, np.uint32))


@given(st.data())
def test_every_value_of_every_type_survives_a_chain_of_versions(data: st.DataObject) -> None:
    """NaN payloads, signed zeros, infinities, wrap-around, empty and scalar tensors: bits."""
    kinds = ["<f4", "<f2", "<u2", "<i8", "<i4", "i1", "u1", "?"]
    shapes = st.sampled_from([(), (0,), (1,), (3, 0, 2), (5,), (7, 3)])
    layout = data.draw(st.lists(st.tuples(st.sampled_from(kinds), shapes), min_size=1, max_size=4))

    def drawn(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape)) * dtype.itemsize
        raw = bytearray(data.draw(st.binary(min_size=size, max_size=size)))
        if dtype == np.dtype("?"):
            raw = bytearray(byte & 1 for byte in raw)
        return np.frombuffer(raw, dtype).reshape(shape)

    encoder = ShardEncoder()
    held: dict[str, np.ndarray] | None = None
    for step in range(3):
        new = {}
        for number, (kind, shape) in enumerate(layout):
            name = f"t{number}"
            keep = held is not None and data.draw(st.booleans())
            new[name] = held[name] if keep and held else drawn(np.dtype(kind), shape)
        shard = encoder.encode(Version(1, step), new, anchor=False)
        held = decode(shard.slices, shard.chunks.__getitem__, held)
        for name, array in new.items():
            assert held[name].dtype == array.dtype
            assert held[name].shape == array.shape
            assert held[name].tobytes() == array.tobytes()


def test_special_floats_travel_as_bits() -> None:
    old = np.array([0.0, 1.0, -1.0, np.inf, 0.0], "<f4")
    new = np.array([-0.0, np.nan, np.inf, -np.inf, 0.0], "<f4")
    new.view("<u4")[1] = 0x7FC0BEEF  # a NaN with a payload
    encoder = ShardEncoder()
    encoder.encode(Version(1, 0), {"w": old}, anchor=True)
    shard = encoder.encode(Version(1, 1), {"w": new}, anchor=False)
    back = decode(shard.slices, shard.chunks.__getitem__, {"w": old})["w"]
    assert back.view("<u4").tolist() == new.view("<u4").tolist()


def test_a_tensor_that_comes_or_goes_makes_an_anchor() -> None:
    encoder = ShardEncoder()
    first = {"a": np.zeros(9, "<f4")}
    encoder.encode(Version(1, 0), first, anchor=True)
    for step, tensors in enumerate(({**first, "b": np.ones(2, "<f4")}, first), start=1):
        shard = encoder.encode(Version(1, step), tensors, anchor=False)
        assert (shard.base, shard.chain_length) == (None, 0)
        assert decode(shard.slices, shard.chunks.__getitem__, None).keys() == tensors.keys()


@given(st.integers(0, 400), st.integers(0, 60), st.integers(0, 2**32 - 1), WIDTHS)
def test_changes_are_those_that_differ(count: int, changes: int, seed: int, width: int) -> None:
    noise = np.random.default_rng(seed)
    old = noise.integers(0, 4, count * width, dtype=np.uint8).view(f"<u{width}")
    new = old.copy()
    if count:
        new[noise.integers(0, count, changes)] ^= 1
    found = codec.changes(old, new)
    assert found.positions.tolist() == np.flatnonzero(old != new).tolist()
    np.testing.assert_array_equal(old[found.positions] + found.difference, new[found.positions])


def test_few_small_changes_travel_as_a_few_bytes() -> None:
    old = np.random.default_rng(0).integers(0, 2**16, 1_000_000, dtype=np.uint16)
    new = old.copy()
    new[::1000] += 1
    data = codec.encode_delta(codec.changes(old, new))
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
