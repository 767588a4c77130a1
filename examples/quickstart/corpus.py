"""The quickstart's tasks: two reasoning-gym families, their split, and worked examples of them.

Every question belongs to one bucket, the split that the environment puts it in. Pretraining sees
one bucket, reinforcement learning another, and evaluation the third, whatever seeds the data sets
are made with.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import reasoning_gym
from reasoning_gym.arithmetic.leg_counting import ANIMALS

from services.envs.reasoning_gym import split_of

Bucket = Literal["eval", "train", "pretrain"]

FAMILIES: dict[str, dict[str, int]] = {
    "chain_sum": {"min_terms": 3, "max_terms": 5, "min_digits": 1, "max_digits": 1},
    "leg_counting": {
        "min_animals": 2,
        "max_animals": 4,
        "min_instances": 1,
        "max_instances": 4,
    },
}
"""Family names and their reasoning-gym parameters."""


@dataclass(frozen=True)
class Example:
    """One question with the reply that pretraining teaches."""

    family: str
    question: str
    reply: str


def tasks(family: str, wanted: Bucket, seed: int) -> Iterator[dict[str, Any]]:
    """Yield distinct reasoning-gym entries of one bucket, in an order fixed by the seed.

    A data set's entry i is drawn from `seed + i`, so seeds lie far apart.
    """
    dataset = reasoning_gym.create_dataset(
        family, seed=seed * 1_000_003, size=1_000_000, **FAMILIES[family]
    )
    seen: set[str] = set()
    for index in range(len(dataset)):
        entry = dataset[index]
        question = entry["question"]
        if split_of(question) == wanted and question not in seen:
            seen.add(question)
            yield entry


def direct(entry: dict[str, Any]) -> str:
    """Return the reply that only states the answer."""
    return f"Answer: {entry['answer']}"


def worked(entry: dict[str, Any]) -> str:
    """Return the reply that keeps a running total, a line a step, then states the answer."""
    steps = _WORKED[entry["metadata"]["source_dataset"]](entry["metadata"])
    return "\n".join([*steps, direct(entry)])


def _chain_sum_steps(metadata: dict[str, Any]) -> list[str]:
    first, *rest = metadata["expression"].split(" ")
    total = int(first)
    steps = [first]
    for operator, term in zip(rest[::2], rest[1::2], strict=True):
        total += int(term) if operator == "+" else -int(term)
        steps.append(f"{operator} {term} = {total}")
    return steps


def _leg_counting_steps(metadata: dict[str, Any]) -> list[str]:
    total = 0
    steps = []
    for animal, count in metadata["animals"].items():
        legs = count * ANIMALS[animal]
        total += legs
        steps.append(f"{count} {animal}{'s' if count > 1 else ''}: + {legs} = {total}")
    return steps


_WORKED: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "chain_sum": _chain_sum_steps,
    "leg_counting": _leg_counting_steps,
}


def examples(seed: int, worked_share: float) -> Iterator[Example]:
    """Yield pretraining examples without end, the families in turn.

    Args:
        seed: of the questions and of the choice of replies.
        worked_share: probability that a reply is worked out.
    """
    rng = random.Random(seed)
    sources = {family: tasks(family, "pretrain", seed) for family in FAMILIES}
    while True:
        for family, source in sources.items():
            entry = next(source)
            reply = worked(entry) if rng.random() < worked_share else direct(entry)
            yield Example(family, entry["question"], reply)
