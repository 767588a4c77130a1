"""What a sample's policy saw and said, token by token, while it is being played."""

from dataclasses import dataclass, field

import numpy as np

from moera.v1 import common_pb2
from moera.wire import TokenSequence, Version, sequence_from_proto, sequence_to_proto
from services.rollout.engine import Output

_PROMPT = common_pb2.SEGMENT_SOURCE_PROMPT
_POLICY = common_pb2.SEGMENT_SOURCE_POLICY
_ENVIRONMENT = common_pb2.SEGMENT_SOURCE_ENVIRONMENT


@dataclass
class Recording:
    """One token stream of a sample, growing at its end."""

    token_ids: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    segments: list[common_pb2.Segment] = field(default_factory=list)
    version_spans: list[common_pb2.VersionSpan] = field(default_factory=list)
    routes: dict[int, np.ndarray] = field(default_factory=dict)
    """Position to [layers, top_k], where recorded."""

    @classmethod
    def of(cls, message: common_pb2.Sequence) -> "Recording":
        """Go on from a stored sequence.

        Raises:
            InvalidArgumentError: the sequence is malformed.
        """
        stored = sequence_from_proto(message)
        routes = stored.routed_experts
        fed = () if routes is None else np.flatnonzero(routes.any(axis=(1, 2)))
        return cls(
            stored.token_ids.tolist(),
            stored.loss_mask.tolist(),
            stored.logprobs.tolist(),
            stored.segments,
            stored.version_spans,
            {} if routes is None else {int(at): routes[at] for at in fed},
        )

    def given(self, token_ids: list[int], turn: int) -> None:
        """Append tokens that the policy did not sample: the prompt, or the environment's."""
        source = _ENVIRONMENT if self.token_ids else _PROMPT
        self._extend(source, turn, len(token_ids))
        self.token_ids += token_ids
        self.loss_mask += [False] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)

    def sampled(self, output: Output, turn: int) -> None:
        """Append a token that the policy sampled."""
        at = len(self.token_ids)
        if output.routed_experts is not None:
            self.routes[at - 1] = output.routed_experts
        self._extend(_POLICY, turn, 1)
        last = self.version_spans[-1] if self.version_spans else None
        if (
            last
            and last.start + last.num_tokens == at
            and Version.of(last.version) == (output.version)
        ):
            last.num_tokens += 1
        else:
            span = common_pb2.VersionSpan(version=output.version.proto(), start=at, num_tokens=1)
            self.version_spans.append(span)
        self.token_ids.append(output.token_id)
        self.loss_mask.append(True)
        self.logprobs.append(output.logprob)

    def _extend(self, source: "common_pb2.SegmentSource", turn: int, count: int) -> None:
        last = self.segments[-1] if self.segments else None
        if last and last.source == source and last.turn == turn:
            last.num_tokens += count
        else:
            start = len(self.token_ids)
            self.segments.append(
                common_pb2.Segment(source=source, start=start, num_tokens=count, turn=turn)
            )

    def mask_turn(self, turn: int) -> None:
        """Keep a turn's tokens out of training."""
        for segment in self.segments:
            if segment.turn == turn and segment.source == _POLICY:
                end = segment.start + segment.num_tokens
                self.loss_mask[segment.start : end] = [False] * segment.num_tokens

    def proto(self) -> common_pb2.Sequence:
        """Write it to the wire."""
        routes = None
        if self.routes:
            example = next(iter(self.routes.values()))
            routes = np.zeros((len(self.token_ids), *example.shape), example.dtype)
            for at, chosen in self.routes.items():
                routes[at] = chosen
        return sequence_to_proto(
            TokenSequence(
                np.array(self.token_ids, "<i4"),
                np.array(self.loss_mask, "?"),
                np.array(self.logprobs, "<f4"),
                self.segments,
                self.version_spans,
                routes,
            )
        )
