"""The quickstart's control: training rewards that have nothing to do with the answer.

    moera train examples/quickstart/shuffled.toml

Each training answer gets the reward of another answer, drawn at random from the last ones, so
that rewards have the same distribution and no information. Evaluation scores what was said.
Success must not rise; if it does, something other than the reward is being learned.
"""

import random
from collections import deque
from typing import Any, ClassVar

from moera.env import StepResult
from moera.v1 import common_pb2, envs_pb2
from services.envs.reasoning_gym import ReasoningGym


class Shuffled(ReasoningGym):
    """A reasoning-gym family whose training rewards are shuffled among the last answers."""

    deterministic = False

    _last: ClassVar[dict[str, deque[float]]] = {}
    _noise: ClassVar[random.Random] = random.Random(0)

    def __init__(self, family: str, **options: Any) -> None:
        super().__init__(family, **options)
        self._pool = self._last.setdefault(family, deque(maxlen=512))
        self._split = ""

    def reset(self, task: common_pb2.Task) -> str:
        """Show the question."""
        self._split = task.split
        return super().reset(task)

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        """Score the answer, and in training give another one's reward."""
        result = super().step(text, action)
        if self._split == "eval" or result.reward is None:
            return result
        self._pool.append(result.reward)
        return StepResult(reward=self._noise.choice(self._pool), terminated=True)
