"""What a person writes: an Environment with tasks, reset and step.

    class Guess(Environment):
        def tasks(self, split):
            return [str(n) for n in range(10)]
        def reset(self, task):
            self.secret = int(task.task_id)
            return "Guess a number from 0 to 9."
        def step(self, text, action):
            return StepResult(reward=float(text.strip() == str(self.secret)), terminated=True)

One instance plays one episode. Methods may be plain or async; plain ones run on a thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from moera.v1 import common_pb2, envs_pb2

Messages = str | Sequence[common_pb2.Message]
"""A text stands for one user message."""


@dataclass(frozen=True)
class StepResult:
    """What followed an action."""

    reward: float | None = None
    """Finite; None means unscored, which is not 0."""
    terminated: bool = False
    """The episode reached its natural end."""
    truncated: bool = False
    """The episode was cut by a limit of its own."""
    messages: Messages = ()
    """What the policy sees next; only what is new."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Finite values, for the report."""
    mask_turn: bool = False
    """The tokens of this turn must not be trained."""


class Environment:
    """Base of every environment. Constructor keywords come from [[environment]] params."""

    version = "1"
    """Raise it when tasks or rewards change; it is recorded on every trajectory."""
    deterministic = True
    """Same task and actions give the same observations and rewards."""
    max_turns = 1
    """Most policy turns in an episode."""
    tools: Sequence[common_pb2.ToolSpec] = ()
    """Tools that the policy may call."""

    def tasks(self, split: str) -> Sequence[str]:
        """Return the ids of all tasks of a split; raise KeyError for an unknown split."""
        raise NotImplementedError

    def splits(self) -> Sequence[str]:
        """Return the names of the splits."""
        return ("train", "eval")

    def reset(self, task: common_pb2.Task) -> Messages:
        """Begin the episode and return the first observation."""
        raise NotImplementedError

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        """Act.

        Args:
            text: text of the policy's message.
            action: the whole action, with tool calls.
        """
        raise NotImplementedError
