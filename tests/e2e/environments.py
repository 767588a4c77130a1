"""Environments that go wrong, for whole runs."""

from moera.env import Environment, StepResult
from moera.v1 import common_pb2, envs_pb2


class Flaky(Environment):
    """Counts down in one turn; breaks in one of three ways for every fourth task, or always."""

    def __init__(self, always: str = "") -> None:
        self._always = always

    def tasks(self, split: str) -> list[str]:
        return [str(number) for number in range(200)]

    def reset(self, task: common_pb2.Task):
        self._how = self._always or {0: "raise", 1: "nan", 2: "observation"}.get(
            int(task.task_id) % 12, ""
        )
        return 17 if self._how == "observation" else "Count down from three."

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        if self._how == "raise":
            raise RuntimeError("the dice are lost")
        reward = float("nan") if self._how == "nan" else float(len(text) % 2)
        return StepResult(reward=reward, terminated=True)
