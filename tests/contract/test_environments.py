from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from moera import errors, rpc
from moera.env import Environment, StepResult
from moera.env.episodes import Episodes
from moera.env.servicer import EnvServicer
from moera.v1 import common_pb2, envs_pb2, envs_pb2_grpc
from moera.wire import message_text, text_message
from services.envs.calculator import Calculator
from services.envs.reasoning_gym import ReasoningGym, split_of
from tests.contract.conftest import ask


class Clock:
    """A clock that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Odd(Environment):
    """Breaks in the way that its task names."""

    max_turns = 3

    def tasks(self, split: str) -> list[str]:
        return ["fine"]

    def reset(self, task: common_pb2.Task):
        self.how = task.task_id
        if self.how == "reset raises":
            raise ValueError("no such board")
        return 42 if self.how == "number shown" else "go"

    async def step(self, text: str, action: envs_pb2.Action):
        if self.how == "raises":
            raise RuntimeError("lost the dice")
        return {
            "nan": StepResult(reward=float("nan"), terminated=True),
            "metric": StepResult(metrics={"m": float("inf")}, messages="go"),
            "no result": None,
            "silent": StepResult(),
        }.get(self.how, StepResult(reward=0.5, messages="go on"))


@asynccontextmanager
async def serving(clock: Clock, **options) -> AsyncIterator[envs_pb2_grpc.EnvServiceStub]:
    episodes = Episodes(
        {
            "odd": Odd,
            "calculator": Calculator,
            "sums": lambda: ReasoningGym("chain_sum", size=300, max_terms=3),
        },
        **{"max_episodes": 8, "lease_s": 10.0, "call_deadline_s": 5.0, "clock": clock, **options},
    )
    server = rpc.RpcServer("127.0.0.1:0")
    envs_pb2_grpc.add_EnvServiceServicer_to_server(EnvServicer(episodes), server.grpc)
    await server.start(())
    async with rpc.channel(server.address) as channel:
        yield envs_pb2_grpc.EnvServiceStub(channel)
    await server.stop(0)


def reset(env_id: str, task_id: str, episode_id: str = "e") -> envs_pb2.ResetRequest:
    task = common_pb2.Task(env_id=env_id, task_id=task_id)
    return envs_pb2.ResetRequest(episode_id=episode_id, task=task)


def step(number: int, text: str = "x", **call: str) -> envs_pb2.StepRequest:
    message = text_message(common_pb2.ROLE_ASSISTANT, text)
    if call:
        message.tool_calls.add(id="c", **call)
    return envs_pb2.StepRequest(
        episode_id="e", step=number, action=envs_pb2.Action(message=message)
    )


async def test_reset_and_step_may_be_repeated_and_steps_are_numbered() -> None:
    async with serving(Clock()) as stub:
        first = await ask(stub.Reset, reset("odd", "fine"))
        again = await ask(stub.Reset, reset("odd", "fine"))
        assert (first.already_existed, again.already_existed) == (False, True)
        assert again.observation == first.observation
        assert (await ask(stub.Step, step(1))).reward == 0.5
        assert (await ask(stub.Step, step(1))).replayed
        with pytest.raises(errors.FailedPreconditionError, match="expects step 2; step 3 came"):
            await ask(stub.Step, step(3))
        position = await ask(stub.GetEpisode, envs_pb2.GetEpisodeRequest(episode_id="e"))
        assert (position.next_step, position.total_reward) == (2, 0.5)
        await ask(stub.Step, step(2))
        last = await ask(stub.Step, step(3))
        assert (last.truncated, last.end_reason) == (True, envs_pb2.END_REASON_MAX_TURNS)
        with pytest.raises(errors.FailedPreconditionError, match="has ended"):
            await ask(stub.Step, step(4))
        close = envs_pb2.CloseEpisodeRequest(episode_id="e")
        assert [(await ask(stub.CloseEpisode, close)).existed for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", r"environment 'odd': RuntimeError: lost the dice \(.*test_environments.py:"),
        ("nan", "reward is nan, not a finite number"),
        ("metric", "m is inf, not a finite number"),
        ("no result", "step returned NoneType, not StepResult"),
        ("silent", "no messages although the episode goes on"),
    ],
)
async def test_a_broken_step_is_a_typed_error_and_never_a_reward(how: str, message: str) -> None:
    async with serving(Clock()) as stub:
        await ask(stub.Reset, reset("odd", how))
        with pytest.raises(errors.InternalError, match=message):
            await ask(stub.Step, step(1))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("reset raises", "ValueError: no such board"),
        ("number shown", "a str or a list of Message, not int '?42"),
    ],
)
async def test_a_broken_reset_leaves_no_episode(how: str, message: str) -> None:
    async with serving(Clock()) as stub:
        with pytest.raises(errors.InternalError, match=message):
            await ask(stub.Reset, reset("odd", how))
        assert (await ask(stub.Describe, envs_pb2.DescribeRequest())).open_episodes == 0


async def test_untouched_episodes_end_with_their_lease_and_renewed_ones_stay() -> None:
    clock = Clock()
    async with serving(clock) as stub:
        for episode_id in ("e", "kept"):
            await ask(stub.Reset, reset("odd", "fine", episode_id))
        clock.now = 8.0
        renew = envs_pb2.RenewEpisodesRequest(episode_ids=["kept", "never"])
        assert (await ask(stub.RenewEpisodes, renew)).unknown_episode_ids == ["never"]
        clock.now = 12.0
        with pytest.raises(errors.NotFoundError, match="its lease ran out"):
            await ask(stub.Step, step(1))
        assert (await ask(stub.Describe, envs_pb2.DescribeRequest())).open_episodes == 1


async def test_a_full_server_pushes_back_with_a_delay() -> None:
    async with serving(Clock(), max_episodes=1) as stub:
        await ask(stub.Reset, reset("odd", "fine", "one"))
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            await ask(stub.Reset, reset("odd", "fine", "two"))
        assert caught.value.retry_after_s == 0.5


async def test_a_hanging_environment_is_cut_at_the_deadline() -> None:
    async with serving(Clock(), call_deadline_s=0.0) as stub:
        with pytest.raises(errors.DeadlineError, match="reset took longer"):
            await ask(stub.Reset, reset("odd", "fine"))


async def test_the_calculator_answers_calls_and_scores_the_final_number() -> None:
    async with serving(Clock()) as stub:
        shown = await ask(stub.Reset, reset("calculator", "7"))
        assert [tool.name for tool in shown.tools] == ["calculator"]
        problem = message_text(shown.observation.messages[0])
        expression = problem.removeprefix("What is ").partition("?")[0]
        calls = (
            ("calculator", f'{{"expression": "{expression}"}}'),
            ("calculator", "{broken"),
            ("calculator", '{"expression": "__import__(1)"}'),
            ("shell", "{}"),
        )
        replies = []
        for number, (name, arguments) in enumerate(calls, 1):
            answer = await ask(stub.Step, step(number, "", name=name, arguments_json=arguments))
            replies.append(message_text(answer.observation.messages[0]))
        left, _, right = expression.partition(") * ")
        a, _, b = left.removeprefix("(").partition(" + ")
        assert replies[0] == str((int(a) + int(b)) * int(right))
        assert all(reply.startswith("error: ") for reply in replies[1:])
        final = await ask(stub.Step, step(5, replies[0]))
        assert (final.reward, final.terminated, final.metrics["tool_calls"]) == (1.0, True, 4.0)


async def test_reasoning_gym_splits_are_disjoint_and_its_scorer_is_the_reward() -> None:
    async with serving(Clock()) as stub:
        listed = {}
        for split in ("pretrain", "train", "eval"):
            request = envs_pb2.ListTasksRequest(env_id="sums", split=split)
            page = await ask(stub.ListTasks, request)
            assert page.end
            listed[split] = [task.task_id for task in page.tasks]
        assert len(listed["eval"]) < len(listed["train"]) < len(listed["pretrain"])
        ids = [task_id for found in listed.values() for task_id in found]
        assert len(ids) == len(set(ids))
        shown = await ask(stub.Reset, reset("sums", listed["eval"][0]))
        question = message_text(shown.observation.messages[0])
        assert split_of(question) == "eval"
        sum_of = question.rpartition(":")[2].partition("=")[0]
        answer = sum(int(term) for term in sum_of.replace("- ", "-").replace("+ ", "").split())
        ended = await ask(stub.Step, step(1, f"Let me see.\nAnswer: {answer}"))
        assert (ended.reward, ended.terminated) == (1.0, True)
