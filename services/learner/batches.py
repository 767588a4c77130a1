"""From trajectories to packed rows.

    groups -> advantages -> one line for each sequence -> rows (first fit) -> micro-batches

What a token weighs in the loss is settled here for the whole batch, so that neither packing nor
the cut into micro-batches changes the result.

Shapes: R rows, W tokens of a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from moera import wire
from moera.v1 import cache_pb2, common_pb2
from moera.wire import TokenSequence
from services.learner import algorithms
from services.learner.config import LearnerSection


@dataclass(frozen=True)
class Line:
    """One sequence on its way into a row."""

    tokens: TokenSequence
    advantage: float
    trained: np.ndarray
    """bool [T]: tokens that are trained."""
    current: np.ndarray
    """bool [T]: tokens that the very policy sampled that trains them."""


@dataclass(frozen=True)
class Microbatch:
    """Rows that go through the model together, [R, W] each."""

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    """Restart at 0 with each sequence; padding counts on from 0 too."""
    chosen: torch.Tensor
    """bool: tokens that are trained."""
    filled: torch.Tensor
    """bool: false on padding."""
    behaviour: torch.Tensor
    """float32: logprobs of the distribution that sampled."""
    advantages: torch.Tensor
    weights: torch.Tensor
    """float32: share of each chosen token in the loss of the whole batch."""
    current: torch.Tensor
    """bool."""


@dataclass
class Batch:
    """What one optimizer step trains on."""

    trajectories: list[common_pb2.Trajectory]
    microbatches: list[Microbatch]
    metrics: dict[str, float] = field(default_factory=dict)


class Staleness:
    """Staleness of tokens, across lineages.

    Args:
        step: step that will train.
        epoch: living lineage.
        restores: lineage to the step it was restored from.
    """

    def __init__(self, step: int, epoch: int, restores: Mapping[int, int]) -> None:
        self._step = step
        self._epoch = epoch
        self._restores = restores

    def of(self, versions: np.ndarray) -> np.ndarray:
        """Return int64 [T] for [T, 2] epochs and steps."""
        at = versions[:, 1].copy()
        for epoch, restored in self._restores.items():
            at = np.where(versions[:, 0] < epoch, np.minimum(at, restored), at)
        return np.maximum(0, self._step - 1 - at)

    def is_current(self, versions: np.ndarray) -> np.ndarray:
        """Return bool [T]: sampled by the living lineage's newest version."""
        return (versions[:, 0] == self._epoch) & (versions[:, 1] == self._step - 1)


def make_batch(
    groups: Sequence[cache_pb2.AssignedGroup],
    trajectories: Mapping[str, common_pb2.Trajectory],
    section: LearnerSection,
    staleness: Staleness,
) -> Batch:
    """Turn assigned groups into micro-batches.

    Raises:
        InvalidArgumentError: a trajectory is malformed.
    """
    lines: list[Line] = []
    flat = 0
    for group in groups:
        members = [trajectories[sample.sample_id] for sample in group.samples]
        rewards = [member.reward for member in members]
        values = algorithms.advantages(rewards, section.algorithm.advantage)
        flat += max(rewards) == min(rewards)
        for member, advantage in zip(members, values, strict=True):
            lines += [_line(message, advantage, section, staleness) for message in member.sequences]
    ordered = [trajectories[sample.sample_id] for group in groups for sample in group.samples]
    batch = Batch(ordered, _microbatches(lines, section))
    batch.metrics = _metrics(groups, ordered, lines, section)
    batch.metrics["zero_variance_groups"] = float(flat)
    return batch


def _line(
    message: common_pb2.Sequence, advantage: float, section: LearnerSection, staleness: Staleness
) -> Line:
    tokens = wire.sequence_from_proto(message)
    versions = tokens.version_steps()
    trained = tokens.loss_mask.copy()
    trained[:1] = False
    if section.on_stale == "mask_tokens":
        trained &= staleness.of(versions) <= section.max_staleness
    return Line(tokens, advantage, trained, staleness.is_current(versions))


def _microbatches(lines: list[Line], section: LearnerSection) -> list[Microbatch]:
    counts = [int(line.trained.sum()) for line in lines]
    weights = algorithms.token_weights(counts, section.algorithm.aggregation)
    # A sequence without a trained token adds nothing to the loss.
    used = [(line, weight) for line, weight in zip(lines, weights, strict=True) if weight]
    used.sort(key=lambda each: len(each[0].tokens), reverse=True)
    if not used:
        return []
    width = len(used[0][0].tokens)
    rows = _first_fit([len(line.tokens) for line, _ in used], width)
    per_batch = max(1, section.max_tokens_per_microbatch // width)
    return [
        _pack([[used[index] for index in row] for row in rows[start : start + per_batch]], width)
        for start in range(0, len(rows), per_batch)
    ]


def _first_fit(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Return indices by row; lengths come longest first."""
    rows: list[list[int]] = []
    room: list[int] = []
    for index, length in enumerate(lengths):
        for row, free in enumerate(room):
            if length <= free:
                rows[row].append(index)
                room[row] -= length
                break
        else:
            rows.append([index])
            room.append(width - length)
    return rows


def _pack(rows: list[list[tuple[Line, float]]], width: int) -> Microbatch:
    shape = (len(rows), width)
    whole = {
        "token_ids": np.zeros(shape, np.int64),
        "position_ids": np.zeros(shape, np.int64),
        "chosen": np.zeros(shape, bool),
        "filled": np.zeros(shape, bool),
        "behaviour": np.zeros(shape, np.float32),
        "advantages": np.zeros(shape, np.float32),
        "weights": np.zeros(shape, np.float32),
        "current": np.zeros(shape, bool),
    }
    for row, members in enumerate(rows):
        start = 0
        for line, weight in members:
            end = start + len(line.tokens)
            here = (row, slice(start, end))
            whole["token_ids"][here] = line.tokens.token_ids
            whole["position_ids"][here] = np.arange(end - start)
            whole["chosen"][here] = line.trained
            whole["filled"][here] = True
            whole["behaviour"][here] = line.tokens.logprobs
            whole["advantages"][here] = line.advantage
            whole["weights"][here] = np.where(line.trained, weight, 0.0)
            whole["current"][here] = line.current
            start = end
        whole["position_ids"][row, start:] = np.arange(width - start)
    return Microbatch(**{name: torch.from_numpy(array) for name, array in whole.items()})


def _metrics(
    groups: Sequence[cache_pb2.AssignedGroup],
    trajectories: Sequence[common_pb2.Trajectory],
    lines: Sequence[Line],
    section: LearnerSection,
) -> dict[str, float]:
    rewards = np.array([each.reward for each in trajectories])
    lags = np.array([sample.staleness for group in groups for sample in group.samples])
    response = sum(int(line.tokens.loss_mask.sum()) for line in lines)
    return {
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "success_rate": float((rewards >= section.evaluation.success_threshold - 1e-9).mean()),
        "staleness_mean": float(lags.mean()),
        "staleness_max": float(lags.max()),
        "num_samples": float(len(rewards)),
        "num_tokens": float(sum(len(line.tokens) for line in lines)),
        "num_policy_tokens": float(sum(int(line.trained.sum()) for line in lines)),
        "response_tokens_mean": response / len(rewards),
    }
