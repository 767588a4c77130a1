"""Tensors, sequences and payloads between numpy and the wire.

Every decoder checks lengths before it allocates and raises a typed error on malformed bytes.
Shapes: T tokens of a sequence, L MoE layers, K experts chosen for each token.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import xxhash
import zstandard
from google.protobuf.message import DecodeError, Message

from moera.errors import DataLossError, InvalidArgumentError
from moera.v1 import cache_pb2, common_pb2

# bfloat16 has no numpy type: its bits travel, and are handled, as uint16.
_NUMPY_OF = {
    common_pb2.DTYPE_BOOL: np.dtype("?"),
    common_pb2.DTYPE_UINT8: np.dtype("u1"),
    common_pb2.DTYPE_UINT16: np.dtype("<u2"),
    common_pb2.DTYPE_INT8: np.dtype("i1"),
    common_pb2.DTYPE_INT16: np.dtype("<i2"),
    common_pb2.DTYPE_INT32: np.dtype("<i4"),
    common_pb2.DTYPE_INT64: np.dtype("<i8"),
    common_pb2.DTYPE_FLOAT16: np.dtype("<f2"),
    common_pb2.DTYPE_BFLOAT16: np.dtype("<u2"),
    common_pb2.DTYPE_FLOAT32: np.dtype("<f4"),
    common_pb2.DTYPE_FLOAT64: np.dtype("<f8"),
}
_DTYPE_OF = {
    dtype: value for value, dtype in _NUMPY_OF.items() if value != common_pb2.DTYPE_BFLOAT16
}

MAX_DECOMPRESSED_BYTES = 2**30
"""Largest payload that is decompressed."""

_MAX_AXES = 32
_MAX_VERSION_NUMBER = 2**63 - 1

MessageT = TypeVar("MessageT", bound=Message)


class Version(NamedTuple):
    """A policy version; compares lexicographically."""

    epoch: int
    step: int

    @classmethod
    def of(cls, message: common_pb2.PolicyVersion) -> "Version":
        """Read it from the wire."""
        return cls(message.epoch, message.step)

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read what `str` wrote."""
        epoch, step = text.split(".")
        return cls(int(epoch), int(step))

    def proto(self) -> common_pb2.PolicyVersion:
        """Write it to the wire."""
        return common_pb2.PolicyVersion(epoch=self.epoch, step=self.step)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.step}"


def numpy_dtype(dtype: "common_pb2.Dtype") -> np.dtype:
    """Return the numpy type that holds elements of a wire type."""
    if dtype not in _NUMPY_OF:
        raise InvalidArgumentError(f"tensor has unknown dtype number {dtype}")
    return _NUMPY_OF[dtype]


def wire_dtype(dtype: np.dtype, *, bfloat16: bool = False) -> "common_pb2.Dtype":
    """Return the wire type of an array's elements; `bfloat16` marks uint16 as bfloat16 bits."""
    if dtype not in _DTYPE_OF:
        raise InvalidArgumentError(f"arrays of {dtype} do not travel; convert first")
    return common_pb2.DTYPE_BFLOAT16 if bfloat16 else _DTYPE_OF[dtype]


def tensor_to_proto(array: np.ndarray, *, bfloat16: bool = False) -> common_pb2.Tensor:
    """Encode an array; `bfloat16` marks uint16 elements as bfloat16 bits."""
    dtype = wire_dtype(array.dtype, bfloat16=bfloat16)
    data = np.ascontiguousarray(array).tobytes()
    return common_pb2.Tensor(data=data, shape=array.shape, dtype=dtype)


def tensor_from_proto(tensor: common_pb2.Tensor) -> np.ndarray:
    """Decode a tensor as a read-only array over the message's bytes.

    Raises:
        InvalidArgumentError: the shape, the type and the bytes do not fit together.
    """
    dtype = numpy_dtype(tensor.dtype)
    if len(tensor.shape) > _MAX_AXES:
        raise InvalidArgumentError(f"tensor has {len(tensor.shape)} axes, at most {_MAX_AXES}")
    if any(extent < 0 for extent in tensor.shape):
        raise InvalidArgumentError(f"tensor has a negative extent: {list(tensor.shape)}")
    count = 1
    for extent in tensor.shape:
        count *= extent
    if count * dtype.itemsize != len(tensor.data):
        raise InvalidArgumentError(
            f"tensor of shape {list(tensor.shape)} and {dtype} needs {count * dtype.itemsize} "
            f"bytes but carries {len(tensor.data)}"
        )
    if dtype == np.bool_ and tensor.data.strip(b"\0\1"):
        raise InvalidArgumentError("a BOOL tensor has bytes other than 0 and 1")
    try:
        return np.frombuffer(tensor.data, dtype).reshape(tuple(tensor.shape))
    except ValueError as error:  # an empty tensor whose other extents no array can have
        raise InvalidArgumentError(f"tensor of shape {list(tensor.shape)}: {error}") from None


@dataclass
class TokenSequence:
    """One token stream of a sample, as arrays over its T tokens."""

    token_ids: np.ndarray
    """int32 [T]."""
    loss_mask: np.ndarray
    """bool [T]; true only on tokens the policy sampled and that may be trained."""
    logprobs: np.ndarray
    """float32 [T]; behaviour logprob of sampled tokens, 0 elsewhere."""
    segments: list[common_pb2.Segment] = field(default_factory=list)
    """Tile [0, T)."""
    version_spans: list[common_pb2.VersionSpan] = field(default_factory=list)
    """Cover every sampled token."""
    routed_experts: np.ndarray | None = None
    """uint8 or uint16 [T, L, K]; None without routing replay."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def version_steps(self) -> np.ndarray:
        """Return int64 [T, 2]: epoch and step that sampled each token; 0 where not sampled."""
        versions = np.zeros((len(self), 2), np.int64)
        for span in self.version_spans:
            versions[span.start : span.start + span.num_tokens] = Version.of(span.version)
        return versions


def sequence_to_proto(sequence: TokenSequence) -> common_pb2.Sequence:
    """Encode a sequence."""
    message = common_pb2.Sequence(
        token_ids=tensor_to_proto(sequence.token_ids.astype("<i4", copy=False)),
        loss_mask=tensor_to_proto(sequence.loss_mask.astype("?", copy=False)),
        logprobs=tensor_to_proto(sequence.logprobs.astype("<f4", copy=False)),
        segments=sequence.segments,
        version_spans=sequence.version_spans,
    )
    if sequence.routed_experts is not None:
        message.routed_experts.CopyFrom(tensor_to_proto(sequence.routed_experts))
    return message


def sequence_from_proto(message: common_pb2.Sequence) -> TokenSequence:
    """Decode and check a sequence.

    Raises:
        InvalidArgumentError: arrays disagree in length, segments do not tile the tokens, a span
            leaves them, a trainable token has no version, or a logprob is not finite.
    """
    sequence = TokenSequence(
        token_ids=tensor_from_proto(message.token_ids),
        loss_mask=tensor_from_proto(message.loss_mask),
        logprobs=tensor_from_proto(message.logprobs),
        segments=list(message.segments),
        version_spans=list(message.version_spans),
        routed_experts=(
            tensor_from_proto(message.routed_experts)
            if message.HasField("routed_experts")
            else None
        ),
    )
    _check_sequence(sequence)
    return sequence


def _check_sequence(sequence: TokenSequence) -> None:
    _check_arrays(sequence)
    _check_segments(sequence.segments, len(sequence))
    for span in sequence.version_spans:
        if span.start + span.num_tokens > len(sequence):
            raise InvalidArgumentError("a version span leaves the sequence")
        if max(Version.of(span.version)) > _MAX_VERSION_NUMBER:
            raise InvalidArgumentError("the epoch or step of a version span does not fit int64")
    if (sequence.loss_mask & (sequence.version_steps()[:, 0] == 0)).any():
        raise InvalidArgumentError("a trainable token has no version")


def _check_arrays(sequence: TokenSequence) -> None:
    length = len(sequence)
    for name, dtype in (("token_ids", "<i4"), ("loss_mask", "?"), ("logprobs", "<f4")):
        array = getattr(sequence, name)
        if array.shape != (length,) or array.dtype != np.dtype(dtype):
            raise InvalidArgumentError(
                f"{name} is {array.dtype} {list(array.shape)}, expected {dtype} [{length}]"
            )
    routes = sequence.routed_experts
    if routes is not None and (
        routes.ndim != 3 or routes.shape[0] != length or routes.dtype.str not in ("|u1", "<u2")
    ):
        raise InvalidArgumentError(
            f"routed_experts is {routes.dtype} {list(routes.shape)}, "
            f"expected uint8 or uint16 [{length}, layers, top_k]"
        )
    if not np.isfinite(sequence.logprobs).all():
        raise InvalidArgumentError("a logprob is not finite")


def _check_segments(segments: list[common_pb2.Segment], length: int) -> None:
    end = 0
    for segment in segments:
        if segment.start != end:
            raise InvalidArgumentError(f"segments leave a gap or overlap at token {end}")
        end += segment.num_tokens
    if end != length:
        raise InvalidArgumentError(f"segments cover {end} of {length} tokens")


def pack(message: Message) -> common_pb2.Payload:
    """Serialise and compress a message into a payload."""
    raw = message.SerializeToString()
    data = zstandard.ZstdCompressor(level=1).compress(raw)
    return common_pb2.Payload(
        data=data,
        compression=common_pb2.COMPRESSION_ZSTD,
        uncompressed_bytes=len(raw),
        checksum=xxhash.xxh3_128_digest(data),
    )


def check_payload(payload: common_pb2.Payload) -> None:
    """Raise DataLossError unless the payload's bytes match its checksum."""
    if xxhash.xxh3_128_digest(payload.data) != payload.checksum:
        raise DataLossError(f"payload of {len(payload.data)} bytes does not match its checksum")


def unpack(payload: common_pb2.Payload, kind: type[MessageT]) -> MessageT:
    """Verify, decompress and parse a payload.

    Raises:
        DataLossError: the checksum or the size does not match, or the bytes do not parse.
        InvalidArgumentError: unknown compression, or larger than MAX_DECOMPRESSED_BYTES.
    """
    check_payload(payload)
    if payload.uncompressed_bytes > MAX_DECOMPRESSED_BYTES:
        raise InvalidArgumentError(f"payload claims {payload.uncompressed_bytes} bytes")
    if payload.compression == common_pb2.COMPRESSION_ZSTD:
        raw = _decompress(payload)
    elif payload.compression == common_pb2.COMPRESSION_NONE:
        raw = payload.data
    else:
        raise InvalidArgumentError(f"unknown compression {payload.compression}")
    if len(raw) != payload.uncompressed_bytes:
        raise DataLossError(f"payload claims {payload.uncompressed_bytes} bytes, holds {len(raw)}")
    message = kind()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise DataLossError(f"payload is not a {kind.__name__}: {error}") from None
    return message


def _decompress(payload: common_pb2.Payload) -> bytes:
    try:
        # The frame's own size claim is not trusted: a bomb must not be allocated.
        size = zstandard.frame_content_size(payload.data)
        if size != payload.uncompressed_bytes:
            raise DataLossError(f"payload claims {payload.uncompressed_bytes} bytes, frame {size}")
        return zstandard.ZstdDecompressor().decompress(
            payload.data, max_output_size=payload.uncompressed_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DataLossError(f"payload does not decompress: {error}") from None


def summarize(trajectory: common_pb2.Trajectory) -> cache_pb2.SampleSummary:
    """Return what the cache must know of a trajectory.

    Raises:
        InvalidArgumentError: a sequence is malformed, or the reward is not finite.
    """
    if not math.isfinite(trajectory.reward):
        raise InvalidArgumentError(f"reward {trajectory.reward} is not finite")
    sequences = [sequence_from_proto(message) for message in trajectory.sequences]
    versions = [
        Version.of(span.version) for sequence in sequences for span in sequence.version_spans
    ]
    summary = cache_pb2.SampleSummary(
        num_tokens=sum(len(sequence) for sequence in sequences),
        num_policy_tokens=sum(int(sequence.loss_mask.sum()) for sequence in sequences),
        traceparent=trajectory.traceparent,
    )
    if versions:
        summary.oldest_version.CopyFrom(min(versions).proto())
        summary.newest_version.CopyFrom(max(versions).proto())
    if trajectory.WhichOneof("outcome") == "reward":
        summary.reward = trajectory.reward
    elif trajectory.WhichOneof("outcome") == "failure":
        summary.failure.CopyFrom(trajectory.failure)
    return summary


def message_text(message: common_pb2.Message) -> str:
    """Return the text of a chat message; images are left out."""
    return "".join(part.text for part in message.content if part.WhichOneof("part") == "text")


def text_message(role: "common_pb2.Role", text: str) -> common_pb2.Message:
    """Return a chat message with one text part."""
    return common_pb2.Message(role=role, content=[common_pb2.ContentPart(text=text)])


def sample_id(group_id: str, index: int) -> str:
    """Return the id of a group's sample."""
    return f"{group_id}/{index}"
