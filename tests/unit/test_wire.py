"""Tensors, sequences and payloads: round trips, and typed errors on everything malformed."""

import contextlib
import tracemalloc
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from moera import wire
from moera.errors import DataLossError, InvalidArgumentError, MoeraError
from moera.v1 import common_pb2
from moera.wire import TokenSequence, Version

DTYPES = ["?", "u1", "<u2", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)


def version(step: int, epoch: int = 1) -> common_pb2.PolicyVersion:
    return common_pb2.PolicyVersion(epoch=epoch, step=step)


def a_sequence(**changes: Any) -> TokenSequence:
    """Two prompt tokens, two sampled at step 3, one from the environment, one sampled at 4."""
    segments = [(1, 0, 2), (2, 2, 2), (3, 4, 1), (2, 5, 1)]
    fields: dict[str, Any] = {
        "token_ids": np.arange(6, dtype=np.int32),
        "loss_mask": np.array([0, 0, 1, 1, 0, 1], bool),
        "logprobs": np.array([0, 0, -0.5, -1.5, 0, -2.0], np.float32),
        "segments": [
            common_pb2.Segment(source=source, start=start, num_tokens=count)
            for source, start, count in segments
        ],
        "version_spans": [
            common_pb2.VersionSpan(version=version(3), start=2, num_tokens=2),
            common_pb2.VersionSpan(version=version(4), start=5, num_tokens=1),
        ],
    }
    return TokenSequence(**(fields | changes))


def payload(data: bytes, size: int, compression: Any = common_pb2.COMPRESSION_ZSTD) -> Any:
    return common_pb2.Payload(
        data=data,
        uncompressed_bytes=size,
        compression=compression,
        checksum=xxhash.xxh3_128_digest(data),
    )


@given(ARRAYS)
def test_arrays_survive_the_wire(array: np.ndarray) -> None:
    decoded = wire.tensor_from_proto(wire.tensor_to_proto(array))
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, array)


def test_transposed_arrays_travel_in_row_major_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T
    tensor = wire.tensor_to_proto(array)
    assert np.frombuffer(tensor.data, "<i4").tolist() == [0, 3, 1, 4, 2, 5]


def test_bfloat16_travels_as_its_bits() -> None:
    tensor = wire.tensor_to_proto(np.array([0x3F80], np.uint16), bfloat16=True)
    assert tensor.dtype == common_pb2.DTYPE_BFLOAT16
    assert wire.tensor_from_proto(tensor).tolist() == [0x3F80]


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1], ">i4"), np.array([1j])])
def test_arrays_that_have_no_wire_type_are_refused(array: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentError, match="do not travel"):
        wire.tensor_to_proto(array)


def test_decoded_tensors_cannot_be_written() -> None:
    decoded = wire.tensor_from_proto(wire.tensor_to_proto(np.zeros(2, np.int32)))
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.binary(max_size=64),
    st.lists(st.one_of(st.integers(0, 5), INT64), max_size=70),
    st.integers(0, 20),
)
def test_any_tensor_decodes_or_is_refused(data: bytes, shape: list[int], dtype: int) -> None:
    tensor = common_pb2.Tensor(data=data, shape=shape)
    tensor.dtype = dtype  # type: ignore[assignment]
    try:
        decoded = wire.tensor_from_proto(tensor)
    except InvalidArgumentError:
        return
    assert list(decoded.shape) == shape
    assert decoded.nbytes == len(data)


@pytest.mark.parametrize(
    ("data", "shape", "dtype"),
    [
        (b"", [0, 2**62, 2**62], common_pb2.DTYPE_FLOAT64),
        (b"\0", [1] * 65, common_pb2.DTYPE_UINT8),
        (b"\2", [1], common_pb2.DTYPE_BOOL),
        (b"\0" * 4, [-1, -1], common_pb2.DTYPE_INT32),
        (b"\0" * 4, [2], common_pb2.DTYPE_INT32),
        (b"\0", [1], common_pb2.DTYPE_UNSPECIFIED),
    ],
)
def test_tensors_that_lie_are_refused(data: bytes, shape: list[int], dtype: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        wire.tensor_from_proto(common_pb2.Tensor(data=data, shape=shape, dtype=dtype))


def test_a_shape_of_a_million_axes_is_refused_at_once() -> None:
    tensor = common_pb2.Tensor(shape=[2**62] * 1_000_000, dtype=common_pb2.DTYPE_UINT8)
    with pytest.raises(InvalidArgumentError, match="axes"):
        wire.tensor_from_proto(tensor)


def test_versions_compare_by_epoch_first() -> None:
    assert Version(2, 0) > Version(1, 99) > Version(1, 3)
    assert str(Version.of(version(7, epoch=2))) == "2.7"
    assert Version.of(Version(2, 7).proto()) == (2, 7)


@pytest.mark.parametrize("routes", [None, np.full((6, 2, 4), 3, np.uint8)])
def test_sequences_survive_the_wire(routes: np.ndarray | None) -> None:
    before = a_sequence(routed_experts=routes)
    after = wire.sequence_from_proto(wire.sequence_to_proto(before))
    for name in ("token_ids", "loss_mask", "logprobs", "routed_experts"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert (after.segments, after.version_spans) == (before.segments, before.version_spans)


def test_each_token_knows_the_version_that_sampled_it() -> None:
    steps = a_sequence().version_steps()
    assert steps.tolist() == [[0, 0], [0, 0], [1, 3], [1, 3], [0, 0], [1, 4]]


def test_an_empty_sequence_is_a_sequence() -> None:
    empty = TokenSequence(np.zeros(0, np.int32), np.zeros(0, bool), np.zeros(0, np.float32))
    assert len(wire.sequence_from_proto(wire.sequence_to_proto(empty))) == 0


SEGMENT, SPAN = common_pb2.Segment, common_pb2.VersionSpan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_mask": np.zeros(5, bool)}, "loss_mask"),
        ({"logprobs": np.zeros((6, 1), np.float32)}, "logprobs"),
        ({"logprobs": np.full(6, np.nan, np.float32)}, "not finite"),
        ({"logprobs": np.full(6, -np.inf, np.float32)}, "not finite"),
        ({"segments": [SEGMENT(num_tokens=5)]}, "cover 5 of 6"),
        ({"segments": [SEGMENT(start=1, num_tokens=5)]}, "gap or overlap at token 0"),
        ({"segments": [SEGMENT(num_tokens=3), SEGMENT(start=2, num_tokens=4)]}, "overlap"),
        ({"version_spans": []}, "no version"),
        ({"version_spans": [SPAN(version=version(3), start=5, num_tokens=2)]}, "leaves"),
        ({"version_spans": [SPAN(version=version(1, epoch=2**64 - 1), num_tokens=6)]}, "epoch"),
        ({"version_spans": [SPAN(version=version(2**63), num_tokens=6)]}, "step"),
        ({"routed_experts": np.zeros((5, 2, 4), np.uint8)}, "routed_experts"),
        ({"routed_experts": np.zeros((6, 8), np.uint8)}, "routed_experts"),
        ({"routed_experts": np.zeros((6, 2, 4), np.float32)}, "routed_experts"),
    ],
)
def test_sequences_that_contradict_themselves_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        wire.sequence_from_proto(wire.sequence_to_proto(a_sequence(**changes)))


def test_a_tensor_of_another_type_is_not_a_token_stream() -> None:
    message = wire.sequence_to_proto(a_sequence())
    message.token_ids.CopyFrom(wire.tensor_to_proto(np.zeros(6, np.int64)))
    with pytest.raises(InvalidArgumentError, match="token_ids is int64"):
        wire.sequence_from_proto(message)


SEQUENCES = wire.sequence_to_proto(
    a_sequence(routed_experts=np.zeros((6, 2, 4), np.uint8))
).SerializeToString()


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(SEQUENCES) - 1), st.integers(0, 255)), max_size=6))
def test_a_sequence_with_flipped_bytes_decodes_or_is_refused(flips: list[tuple[int, int]]) -> None:
    data = bytearray(SEQUENCES)
    for position, value in flips:
        data[position] = value
    with contextlib.suppress(MoeraError):
        wire.sequence_from_proto(
            wire.unpack(payload(bytes(data), len(data), 1), common_pb2.Sequence)
        )


@given(st.text(max_size=200))
def test_payloads_survive_the_wire(text: str) -> None:
    message = wire.text_message(common_pb2.ROLE_USER, text)
    packed = wire.pack(message)
    assert len(packed.checksum) == 16
    assert wire.unpack(packed, common_pb2.Message) == message
    assert wire.message_text(message) == text


def test_an_empty_message_survives_the_wire() -> None:
    assert wire.unpack(wire.pack(common_pb2.Message()), common_pb2.Message) == common_pb2.Message()


def test_uncompressed_payloads_are_read() -> None:
    raw = wire.text_message(common_pb2.ROLE_USER, "hi").SerializeToString()
    packed = payload(raw, len(raw), common_pb2.COMPRESSION_NONE)
    assert wire.message_text(wire.unpack(packed, common_pb2.Message)) == "hi"


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_flipped_bit_is_data_loss(position: int, change: int) -> None:
    packed = wire.pack(wire.text_message(common_pb2.ROLE_USER, "the answer is 42"))
    data = bytearray(packed.data)
    data[position % len(data)] ^= change
    packed.data = bytes(data)
    with pytest.raises(DataLossError, match="checksum"):
        wire.unpack(packed, common_pb2.Message)


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.integers(0, 3))
def test_any_payload_with_a_right_checksum_parses_or_is_refused(
    data: bytes, size: int, compression: int
) -> None:
    with contextlib.suppress(DataLossError, InvalidArgumentError):
        wire.unpack(payload(data, size, compression), common_pb2.Trajectory)


def compressed(raw: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(level=1, **options).compress(raw)


@pytest.mark.parametrize(
    ("packed", "kind"),
    [
        (payload(compressed(b"x" * 100), 99), DataLossError),
        (payload(compressed(b"x" * 100), 101), DataLossError),
        (payload(compressed(b"x" * 100, write_content_size=False), 100), DataLossError),
        (payload(compressed(b"x" * 100)[:-1], 100), DataLossError),
        (payload(compressed(b"\x0a\x00") + b"tail", 2), DataLossError),
        (payload(b"not zstd", 8), DataLossError),
        (payload(b"", 0), DataLossError),
        (payload(compressed(b"\xff" * 100), 100), DataLossError),
        (payload(b"\x0a\x00", 3, common_pb2.COMPRESSION_NONE), DataLossError),
        (payload(compressed(b""), 2**30 + 1), InvalidArgumentError),
        (payload(b"", 0, common_pb2.COMPRESSION_UNSPECIFIED), InvalidArgumentError),
    ],
    ids=lambda value: "" if isinstance(value, common_pb2.Payload) else value.__name__,
)
def test_payloads_that_lie_are_refused(packed: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        wire.unpack(packed, common_pb2.Sequence)


def test_a_bomb_that_hides_its_size_is_never_inflated() -> None:
    compressor = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    bomb = b"".join(compressor.compress(b"\0" * 2**20) for _ in range(256)) + compressor.flush()
    tracemalloc.start()
    try:
        for claim in (100, 2**28, 2**64 - 1):
            with pytest.raises((DataLossError, InvalidArgumentError)):
                wire.unpack(payload(bomb, claim), common_pb2.Trajectory)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_frame_that_holds_less_than_it_claims_is_refused() -> None:
    # Magic, single segment with an 8-byte size field, the claim, one empty last block.
    frame = b"\x28\xb5\x2f\xfd\xe0" + (2**20).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(DataLossError):
        wire.unpack(payload(frame, 2**20), common_pb2.Trajectory)


def a_trajectory(**fields: Any) -> common_pb2.Trajectory:
    sequences = [wire.sequence_to_proto(a_sequence())] * 2
    return common_pb2.Trajectory(sequences=sequences, traceparent="00-a-b-01", **fields)


def test_a_summary_counts_all_sequences_and_spans_their_versions() -> None:
    summary = wire.summarize(a_trajectory(reward=0.0))
    assert (summary.num_tokens, summary.num_policy_tokens) == (12, 6)
    assert (summary.oldest_version, summary.newest_version) == (version(3), version(4))
    assert summary.HasField("reward")
    assert summary.reward == 0.0
    assert not summary.HasField("failure")
    assert summary.traceparent == "00-a-b-01"


def test_a_failure_is_never_a_reward() -> None:
    failure = common_pb2.Failure(kind=common_pb2.FAILURE_KIND_TIMEOUT, message="late")
    summary = wire.summarize(a_trajectory(failure=failure))
    assert not summary.HasField("reward")
    assert summary.failure == failure


def test_a_summary_without_tokens_has_no_versions() -> None:
    summary = wire.summarize(common_pb2.Trajectory(reward=1.0))
    assert not summary.HasField("oldest_version")
    assert not summary.HasField("newest_version")


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(reward: float) -> None:
    with pytest.raises(InvalidArgumentError, match="finite"):
        wire.summarize(a_trajectory(reward=reward))


def test_images_are_left_out_of_text() -> None:
    parts = [
        common_pb2.ContentPart(text="a"),
        common_pb2.ContentPart(image=common_pb2.Image(data=b"png")),
        common_pb2.ContentPart(text="b"),
    ]
    assert wire.message_text(common_pb2.Message(content=parts)) == "ab"


def test_a_sample_is_named_after_its_group() -> None:
    assert wire.sample_id("g-1", 3) == "g-1/3"
