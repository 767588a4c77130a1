"""`moera env check` passes what keeps the contract and names what does not."""

from collections.abc import Callable

import pytest

from moera import rpc
from moera.env import Environment, StepResult
from moera.env.compliance import check
from moera.env.episodes import Episodes
from moera.env.servicer import EnvServicer
from moera.v1 import common_pb2, envs_pb2, envs_pb2_grpc
from services.envs.calculator import Calculator
from services.envs.reasoning_gym import ReasoningGym


class Forgetful(EnvServicer):
    """Breaks one rule after the other."""

    def __init__(self, episodes: Episodes, broken: str) -> None:
        super().__init__(episodes)
        self._broken = broken

    async def Reset(self, request: envs_pb2.ResetRequest, context):
        response = await super().Reset(request, context)
        if self._broken == "reset forgets":
            response.already_existed = False
        if self._broken == "no role":
            del response.observation.messages[:]
            response.observation.messages.add()
        return response

    async def Step(self, request: envs_pb2.StepRequest, context):
        response = await super().Step(request, context)
        if self._broken == "nan":
            response.reward = float("nan")
        if self._broken == "wrong number":
            response.step += 1
        if self._broken == "replays are silent":
            response.replayed = False
        return response

    async def ListTasks(self, request: envs_pb2.ListTasksRequest, context):
        if self._broken == "any split":
            request.split = "eval"
        return await super().ListTasks(request, context)


class Dice(Environment):
    """Calls itself deterministic and is not."""

    rolls = 0

    def tasks(self, split: str) -> list[str]:
        return ["one"]

    def reset(self, task: common_pb2.Task) -> str:
        return "roll"

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        Dice.rolls += 1
        return StepResult(reward=float(Dice.rolls), terminated=True)


async def problems(factories: dict[str, Callable[[], Environment]], broken: str = "") -> list[str]:
    episodes = Episodes(factories, max_episodes=8, lease_s=30.0, call_deadline_s=5.0)
    server = rpc.RpcServer("127.0.0.1:0")
    envs_pb2_grpc.add_EnvServiceServicer_to_server(Forgetful(episodes, broken), server.grpc)
    await server.start(())
    verdicts = await check(server.address, "1")
    await server.stop(0)
    assert len(verdicts) == 1 + 5 * len(factories)
    assert len(episodes) == 0 or broken or factories.keys() == {"dice"}
    return [verdict.problem for verdict in verdicts if verdict.problem]


async def test_the_built_in_environments_keep_the_contract() -> None:
    factories = {
        "calculator": Calculator,
        "sums": lambda: ReasoningGym("chain_sum", size=300, max_terms=3),
    }
    assert await problems(factories) == []


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("reset forgets", "does not say already_existed"),
        ("no role", "has no role"),
        ("nan", "reward is nan"),
        ("wrong number", "is answered as step"),
        ("replays are silent", "does not say replayed"),
        ("any split", "unknown split is accepted"),
    ],
)
async def test_each_broken_rule_is_named(broken: str, problem: str) -> None:
    found = await problems({"calculator": Calculator}, broken)
    assert any(problem in text for text in found), found


async def test_what_calls_itself_deterministic_must_be() -> None:
    assert any("differ, though" in text for text in await problems({"dice": Dice}))
