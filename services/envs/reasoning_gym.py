"""Every task family of the reasoning-gym package; its own scorer is the reward.

Five families order sets, so that their tasks depend on PYTHONHASHSEED: run with it fixed
(`moera train` sets it to 0).
"""

import difflib
import functools
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import reasoning_gym
from reasoning_gym.composite import DatasetSpec
from reasoning_gym.factory import DATASETS

from moera.env import Environment, StepResult
from moera.errors import ConfigError
from moera.v1 import common_pb2, envs_pb2

_BUCKETS = {"eval": (0,), "train": (1, 2, 3), "pretrain": (4, 5, 6, 7, 8, 9)}


def split_of(question: str) -> str:
    """Return the split a question belongs to, by a hash: no question is in two splits."""
    bucket = int.from_bytes(hashlib.sha256(question.encode()).digest(), "big") % 10
    return next(name for name, buckets in _BUCKETS.items() if bucket in buckets)


@functools.cache
def _dataset(family: str, seed: int, size: int, options_json: str) -> Any:
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in json.loads(options_json).items()
    }
    if "datasets" in options:  # the family "composite" mixes others
        options["datasets"] = [DatasetSpec(**each) for each in options["datasets"]]
    return reasoning_gym.create_dataset(family, seed=seed, size=size, **options)


@functools.cache
def _task_ids(data: Any) -> dict[str, list[str]]:
    """Indices of a dataset by split, each question once; made in one pass over it."""
    found: dict[str, list[str]] = {split: [] for split in _BUCKETS}
    seen: set[str] = set()
    for index in range(len(data)):
        question = data[index]["question"]
        if question not in seen:
            seen.add(question)
            found[split_of(question)].append(str(index))
    return found


class ReasoningGym(Environment):
    """One family; single turn. A task's id is its index in the dataset."""

    def __init__(self, family: str, seed: int = 0, size: int = 10_000, **options: Any) -> None:
        if family not in DATASETS:
            close = difflib.get_close_matches(family, DATASETS, n=3)
            raise ConfigError(f"reasoning-gym has no family {family!r}; close: {', '.join(close)}")
        try:
            self._data = _dataset(family, seed, size, json.dumps(options, sort_keys=True))
        except (TypeError, AssertionError, ValueError) as error:
            raise ConfigError(f"reasoning-gym family {family!r}: {error}") from None
        self.version = f"{family}-{seed}-{size}"
        self._entry: dict[str, Any] = {}

    def splits(self) -> Sequence[str]:
        """Return the names of the splits."""
        return tuple(_BUCKETS)

    def tasks(self, split: str) -> Sequence[str]:
        """Return the indices whose question falls in the split, each question once."""
        return _task_ids(self._data)[split]

    def reset(self, task: common_pb2.Task) -> str:
        """Show the question."""
        self._entry = self._data[int(task.task_id)]
        return self._entry["question"]

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        """Score the answer: what follows the last "Answer:", else the whole reply.

        Some families' scorers raise on an answer that they cannot parse. That is a wrong answer,
        not a broken environment; the metric `unparsed` counts them.
        """
        answer = text.rpartition("Answer:")[2].strip()
        try:
            reward = float(self._data.score_answer(answer, self._entry))
        except Exception:
            return StepResult(reward=0.0, terminated=True, metrics={"unparsed": 1.0})
        return StepResult(reward=reward, terminated=True, metrics={"unparsed": 0.0})
