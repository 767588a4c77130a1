"""Guess a number: serve it with `moera env serve examples.custom_env.guess:Guess`."""

from moera.env import Environment, StepResult
from moera.v1 import common_pb2, envs_pb2


class Guess(Environment):
    """Up to four guesses; earlier is better."""

    max_turns = 4

    def tasks(self, split: str) -> list[str]:
        """Return the secrets: even ones for training, odd ones for evaluation."""
        return [str(n) for n in range(100) if n % 2 == (split == "eval")]

    def reset(self, task: common_pb2.Task) -> str:
        """Choose the secret."""
        self.secret, self.left = int(task.task_id), self.max_turns
        return "Guess my number from 0 to 99."

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        """Judge a guess."""
        self.left -= 1
        if not text.strip().isdecimal():
            return StepResult(reward=0.0, messages="Reply with a number.", mask_turn=True)
        if int(text) == self.secret:
            return StepResult(reward=0.25 * (1 + self.left), terminated=True)
        return StepResult(reward=0.0, messages="Higher." if int(text) < self.secret else "Lower.")
