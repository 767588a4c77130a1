"""The engine interface: tokens in, tokens and their logprobs out.

    add(request) -> step() -> [Output, ...] -> ... -> finished, or abort(id)

Engines are driven by one thread. An engine knows no samples, environments or services.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from moera.v1 import common_pb2
from moera.wire import Version


@dataclass(frozen=True)
class Request:
    """One continuation to sample."""

    request_id: str
    prompt: list[int]
    """Token ids fed before the first sampled one; a resumed turn's tokens are part of it."""
    sampling: common_pb2.SamplingParams
    max_new_tokens: int
    """Budget of this request; the caller has subtracted what a resumed turn already used."""
    noise_key: str = ""
    """With `sampling_seed`, the key of the counter-based sampling noise; the sample's id."""
    sampling_seed: int = 0
    stop_token_ids: frozenset[int] = frozenset()


@dataclass
class Output:
    """What one step added to a request."""

    request_id: str
    token_id: int
    logprob: float
    """Of the distribution sampled from; at temperature 0 of the temperature-1 distribution."""
    version: Version
    routed_experts: np.ndarray | None
    """[layers, top_k] of the position that produced the token; None unless recorded."""
    finish_reason: "common_pb2.FinishReason | None" = None


@dataclass(frozen=True)
class EngineStats:
    """A reading of an engine."""

    running: int
    waiting: int
    free_blocks: int
    num_blocks: int
    sampled_tokens: int
    prefix_hit_tokens: int
    preemptions: int


@dataclass(frozen=True)
class WeightUpdate:
    """New weights, staged and verified."""

    version: Version
    tensors: Mapping[str, np.ndarray] = field(repr=False)


class Engine(Protocol):
    """What a rollout server needs of an engine."""

    def add(self, request: Request) -> None:
        """Queue a request; raises InvalidArgumentError if it can never fit."""

    def step(self) -> list[Output]:
        """Sample at most one token for each running request."""
        ...

    def abort(self, request_id: str) -> None:
        """Forget a request; what it sampled so far has been returned by `step`."""

    def update_weights(self, update: WeightUpdate) -> None:
        """Swap weights between two steps; cached prefixes of the old version are dropped."""

    def score(self, token_ids: list[int], temperature: float) -> np.ndarray:
        """Return float32 [T] logprobs of given tokens; 0 for the first."""
        ...

    def stats(self) -> EngineStats:
        """Return a reading."""
        ...

    @property
    def busy(self) -> bool:
        """There is something to step."""
        ...
