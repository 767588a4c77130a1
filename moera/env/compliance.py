"""`moera env check HOST:PORT`: the contract of EnvService, tried on a running server.

Works against any server in any language; it plays a few episodes and closes them.
"""

import argparse
import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from moera.config import EnvironmentSection
from moera.env.client import EnvClient
from moera.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    MoeraError,
    NotFoundError,
)
from moera.v1 import common_pb2, envs_pb2
from moera.wire import text_message

_DEADLINE_S = 30.0
_PATIENCE_S = 5.0
_ROLES = set(common_pb2.Role.values()) - {common_pb2.ROLE_UNSPECIFIED}


class ContractError(MoeraError):
    """The server breaks the contract; the message says where."""


def require(holds: bool, what: str) -> None:
    """Raise ContractError unless the claim holds."""
    if not holds:
        raise ContractError(what)


@dataclass(frozen=True)
class Verdict:
    """Outcome of one check of one environment."""

    env_id: str
    check: str
    problem: str
    """Empty when it passed."""


def _action(text: str) -> envs_pb2.Action:
    return envs_pb2.Action(message=text_message(common_pb2.ROLE_ASSISTANT, text))


class Checker:
    """Plays one environment of a server."""

    def __init__(
        self, client: EnvClient, address: str, info: envs_pb2.EnvironmentInfo, text: str
    ) -> None:
        self._client = client
        self._address = address
        self._info = info
        self._text = text
        self._task = common_pb2.Task()

    async def _call(self, method: str, request: object) -> object:
        return await self._client.call(self._address, method, request)

    async def _reset(self, episode_id: str) -> envs_pb2.ResetResponse:
        request = envs_pb2.ResetRequest(episode_id=episode_id, task=self._task)
        return await self._call("Reset", request)  # type: ignore[return-value]

    async def _step(self, episode_id: str, number: int) -> envs_pb2.StepResponse:
        request = envs_pb2.StepRequest(
            episode_id=episode_id, step=number, action=_action(self._text)
        )
        return await self._call("Step", request)  # type: ignore[return-value]

    async def _close(self, episode_id: str) -> None:
        await self._call("CloseEpisode", envs_pb2.CloseEpisodeRequest(episode_id=episode_id))

    async def _refused(
        self, call: Awaitable[object], kinds: tuple[type[MoeraError], ...], what: str
    ) -> None:
        try:
            await call
        except kinds:
            return
        except MoeraError as error:
            raise ContractError(f"{what} gives {type(error).__name__}: {error}") from error
        raise ContractError(f"{what} is accepted")

    # -- checks, in order: later ones use the task that the first one finds --------------------

    async def tasks_are_listed(self) -> None:
        """Every split pages through tasks of this environment; an unknown split is refused."""
        env_id = self._info.env_id
        require(bool(self._info.splits), "Describe names no split")
        for split in self._info.splits:
            request = envs_pb2.ListTasksRequest(env_id=env_id, split=split.name, limit=10)
            page: envs_pb2.ListTasksResponse = await self._call(  # type: ignore[assignment]
                "ListTasks", request
            )
            require(bool(page.tasks), f"split {split.name!r} has no task")
            require(
                all(task.env_id == env_id and task.task_id for task in page.tasks),
                f"split {split.name!r} lists a task without id or of another environment",
            )
            ids = [task.task_id for task in page.tasks]
            require(len(set(ids)) == len(ids), f"split {split.name!r} lists a task twice")
            self._task = page.tasks[0]
        unknown = envs_pb2.ListTasksRequest(env_id=env_id, split="no-such-split", limit=1)
        await self._refused(
            self._call("ListTasks", unknown),
            (NotFoundError, InvalidArgumentError),
            "ListTasks of an unknown split",
        )

    async def reset_is_idempotent(self) -> None:
        """The same id and task give the same observation; the same id may not change its task."""
        episode_id = uuid.uuid4().hex
        first = await self._reset(episode_id)
        _check_observation(first.observation)
        again = await self._reset(episode_id)
        require(again.already_existed, "a repeated Reset does not say already_existed")
        require(
            again.observation == first.observation, "a repeated Reset shows another observation"
        )
        other = common_pb2.Task()
        other.CopyFrom(self._task)
        other.task_id += "-other"
        await self._refused(
            self._call("Reset", envs_pb2.ResetRequest(episode_id=episode_id, task=other)),
            (InvalidArgumentError, FailedPreconditionError),
            "Reset of an open episode with another task",
        )
        await self._close(episode_id)

    async def steps_are_numbered(self) -> None:
        """A wrong number is refused, a repeated step gets its recorded answer."""
        episode_id = uuid.uuid4().hex
        await self._reset(episode_id)
        await self._refused(
            self._step(episode_id, 7), (FailedPreconditionError,), "step 7 as the first one"
        )
        first = await self._step(episode_id, 1)
        _check_step(first, 1)
        again = await self._step(episode_id, 1)
        require(again.replayed, "a repeated Step does not say replayed")
        require(_content(again) == _content(first), "a repeated Step gives another answer")
        position: envs_pb2.GetEpisodeResponse = await self._call(  # type: ignore[assignment]
            "GetEpisode", envs_pb2.GetEpisodeRequest(episode_id=episode_id)
        )
        require(position.next_step == 2, f"GetEpisode expects step {position.next_step}, not 2")
        await self._close(episode_id)

    async def a_closed_episode_is_gone(self) -> None:
        """Closing twice is fine; a closed or unknown episode is NOT_FOUND."""
        episode_id = uuid.uuid4().hex
        await self._reset(episode_id)
        await self._close(episode_id)
        await self._close(episode_id)
        await self._refused(
            self._step(episode_id, 1), (NotFoundError,), "a step in a closed episode"
        )
        request = envs_pb2.GetEpisodeRequest(episode_id=uuid.uuid4().hex)
        await self._refused(
            self._call("GetEpisode", request), (NotFoundError,), "an unknown episode"
        )

    async def the_same_actions_give_the_same_rewards(self) -> None:
        """What calls itself deterministic is."""
        if not self._info.deterministic:
            return
        played = [await self._played(uuid.uuid4().hex) for _ in range(2)]
        require(
            played[0] == played[1],
            "two plays with the same actions differ, though Describe says deterministic",
        )

    async def _played(self, episode_id: str) -> list[bytes]:
        first = await self._reset(episode_id)
        seen = [first.observation.SerializeToString(deterministic=True)]
        for number in range(1, (self._info.max_turns or 3) + 1):
            answer = await self._step(episode_id, number)
            _check_step(answer, number)
            seen.append(_content(answer))
            if answer.terminated or answer.truncated:
                break
        await self._close(episode_id)
        return seen


def _content(answer: envs_pb2.StepResponse) -> bytes:
    shown = envs_pb2.StepResponse()
    shown.CopyFrom(answer)
    shown.ClearField("replayed")
    shown.ClearField("lease_expires")
    return shown.SerializeToString(deterministic=True)


def _check_observation(observation: envs_pb2.Observation) -> None:
    has_content = observation.messages or observation.raw or observation.HasField("structured")
    require(bool(has_content), "an observation is empty")
    require(
        all(message.role in _ROLES for message in observation.messages),
        "a message of an observation has no role",
    )


def _check_step(answer: envs_pb2.StepResponse, number: int) -> None:
    require(answer.step == number, f"step {number} is answered as step {answer.step}")
    for name, value in (("reward", answer.reward), *answer.metrics.items()):
        require(math.isfinite(value), f"{name} is {value}")
    if answer.terminated or answer.truncated:
        require(
            answer.end_reason != envs_pb2.END_REASON_UNSPECIFIED,
            "an ended episode has no end_reason",
        )
    else:
        _check_observation(answer.observation)


async def check(address: str, text: str) -> list[Verdict]:
    """Try every environment of a server.

    Args:
        text: what the policy says in every turn.

    Raises:
        MoeraError: the server does not answer.
    """
    section = EnvironmentSection(id="checked", address=address)
    client = EnvClient([section], "", deadline_s=_DEADLINE_S, patience_s=_PATIENCE_S)
    verdicts = []
    try:
        described = await client.call(address, "Describe", envs_pb2.DescribeRequest())
        listed = bool(described.environments)
        problem = "" if listed else "Describe lists no environment"
        verdicts.append(Verdict("server", "environments are listed", problem))
        for info in described.environments:
            checker = Checker(client, address, info, text)
            checks: list[Callable[[], Awaitable[None]]] = [
                checker.tasks_are_listed,
                checker.reset_is_idempotent,
                checker.steps_are_numbered,
                checker.a_closed_episode_is_gone,
                checker.the_same_actions_give_the_same_rewards,
            ]
            verdicts += [await _verdict(info.env_id, each) for each in checks]
    finally:
        await client.close()
    return verdicts


async def _verdict(env_id: str, run: Callable[[], Awaitable[None]]) -> Verdict:
    name = getattr(run, "__name__", "").replace("_", " ")
    try:
        await run()
    except ContractError as error:
        return Verdict(env_id, name, str(error))
    except MoeraError as error:
        return Verdict(env_id, name, f"{type(error).__name__}: {error}")
    return Verdict(env_id, name, "")


def check_command(argv: list[str]) -> int:
    """Print a line for each check; returns 1 if one failed."""
    parser = argparse.ArgumentParser(prog="moera env check")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--text", default="1", help="what the policy says in every turn")
    arguments = parser.parse_args(argv)
    verdicts = asyncio.run(check(arguments.address, arguments.text))
    for verdict in verdicts:
        mark = f"FAIL: {verdict.problem}" if verdict.problem else "ok"
        print(f"{verdict.env_id}: {verdict.check}: {mark}")
    return int(any(verdict.problem for verdict in verdicts))
