"""Open episodes: leased, numbered, idempotent, and safe from what environments do.

- An id belongs to one task; a repeated reset or step returns the recorded answer.
- Calls of one episode run one after the other; different episodes run side by side.
- An environment that raises, hangs or returns something malformed gives a typed error that names
  it. That is never a reward.
"""

import asyncio
import inspect
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moera import telemetry
from moera.env.environment import Environment, Messages, StepResult
from moera.errors import (
    DeadlineError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    MoeraError,
    NotFoundError,
    ResourceExhaustedError,
)
from moera.v1 import common_pb2, envs_pb2
from moera.wire import message_text, text_message

_started = telemetry.counter("moera.envs.episodes")
_open = telemetry.up_down_counter("moera.envs.open_episodes")
_failures = telemetry.counter("moera.envs.failures")
_step_duration = telemetry.histogram("moera.envs.step_duration")


@dataclass
class _Episode:
    task: common_pb2.Task
    environment: Environment
    lease_s: float
    expires: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    first: envs_pb2.ResetResponse | None = None
    last: envs_pb2.StepResponse | None = None
    total_reward: float | None = None

    @property
    def next_step(self) -> int:
        return (self.last.step if self.last else 0) + 1

    @property
    def ended(self) -> bool:
        return bool(self.last and (self.last.terminated or self.last.truncated))


class Episodes:
    """All open episodes of one server. `clock` returns seconds and is injected by tests."""

    def __init__(
        self,
        factories: dict[str, Callable[[], Environment]],
        *,
        max_episodes: int,
        lease_s: float,
        call_deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.factories = factories
        self.max_episodes = max_episodes
        self.lease_s = lease_s
        self._call_deadline_s = call_deadline_s
        self._clock = clock
        self._episodes: dict[str, _Episode] = {}

    def __len__(self) -> int:
        self.expire()
        return len(self._episodes)

    def expire(self) -> None:
        """Close episodes whose lease ran out; one in the middle of a call is kept."""
        now = self._clock()
        for episode_id, episode in list(self._episodes.items()):
            if episode.expires < now and not episode.lock.locked():
                self.close(episode_id)

    def close(self, episode_id: str) -> bool:
        """Forget an episode; returns whether it was open."""
        found = self._episodes.pop(episode_id, None) is not None
        if found:
            _open.add(-1)
        return found

    def _get(self, episode_id: str) -> _Episode:
        self.expire()
        if episode_id not in self._episodes:
            raise NotFoundError(
                f"episode {episode_id!r} is not open here: it was closed, its lease ran out, or "
                "the server was restarted; start it again"
            )
        return self._episodes[episode_id]

    def renew(self, episode_id: str, lease_s: float) -> bool:
        """Extend a lease; returns whether the episode is open."""
        self.expire()
        episode = self._episodes.get(episode_id)
        if episode:
            episode.lease_s = lease_s or episode.lease_s
            episode.expires = self._clock() + episode.lease_s
        return episode is not None

    async def reset(self, request: envs_pb2.ResetRequest) -> envs_pb2.ResetResponse:
        """Start an episode, or return the recorded first observation of an open one."""
        if not request.episode_id:
            raise InvalidArgumentError("episode_id is empty: the caller chooses it")
        episode = self._episodes.get(request.episode_id) or self._new(request)
        if episode.task != request.task:
            raise InvalidArgumentError(f"episode {request.episode_id!r} plays another task")
        async with episode.lock:
            existed = episode.first is not None
            if episode.first is None:
                episode.first = await self._first(request, episode)
            self.renew(request.episode_id, 0)
            response = envs_pb2.ResetResponse()
            response.CopyFrom(episode.first)
            response.already_existed = existed
            return response

    def _new(self, request: envs_pb2.ResetRequest) -> _Episode:
        env_id = request.task.env_id
        if env_id not in self.factories:
            raise NotFoundError(
                f"environment {env_id!r} is not served here; served: {', '.join(self.factories)}"
            )
        if len(self) >= self.max_episodes:
            raise ResourceExhaustedError(f"all {self.max_episodes} episodes are in use", 0.5)
        environment = self.factories[env_id]()
        expected = request.expected_env_version
        if expected and expected != environment.version:
            raise FailedPreconditionError(
                f"environment {env_id!r} has version {environment.version}, not {expected}"
            )
        lease_s = request.lease_ms / 1e3 or self.lease_s
        episode = _Episode(request.task, environment, lease_s, self._clock() + lease_s)
        self._episodes[request.episode_id] = episode
        _started.add(1, env_id=env_id)
        _open.add(1)
        return episode

    async def _first(
        self, request: envs_pb2.ResetRequest, episode: _Episode
    ) -> envs_pb2.ResetResponse:
        try:
            shown = await self._call(episode, episode.environment.reset, request.task)
            observation = _observation(request.task.env_id, shown)
        except MoeraError:
            self.close(request.episode_id)
            raise
        return envs_pb2.ResetResponse(
            observation=observation,
            tools=episode.environment.tools,
            env_version=episode.environment.version,
        )

    async def step(self, request: envs_pb2.StepRequest) -> envs_pb2.StepResponse:
        """Act, or return the recorded answer to the last step."""
        episode = self._get(request.episode_id)
        async with episode.lock:
            self.renew(request.episode_id, 0)
            if episode.last and request.step == episode.last.step:
                response = envs_pb2.StepResponse()
                response.CopyFrom(episode.last)
                response.replayed = True
                return response
            if request.step != episode.next_step or episode.ended or episode.first is None:
                state = "has ended" if episode.ended else f"expects step {episode.next_step}"
                raise FailedPreconditionError(
                    f"episode {request.episode_id!r} {state}; step {request.step} came"
                )
            began = time.perf_counter()
            result = await self._call(
                episode,
                episode.environment.step,
                message_text(request.action.message),
                request.action,
            )
            _step_duration.record(time.perf_counter() - began, env_id=episode.task.env_id)
            episode.last = self._response(episode, request.step, result)
            if episode.last.HasField("reward"):
                episode.total_reward = (episode.total_reward or 0.0) + episode.last.reward
            return episode.last

    def _response(self, episode: _Episode, step: int, result: Any) -> envs_pb2.StepResponse:
        env_id = episode.task.env_id
        if not isinstance(result, StepResult):
            raise self._broken(env_id, f"step returned {type(result).__name__}, not StepResult")
        for name, value in (("reward", result.reward), *result.metrics.items()):
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise self._broken(env_id, f"{name} is {value!r}, not a finite number")
        truncated = result.truncated or (
            not result.terminated and step >= episode.environment.max_turns
        )
        reason = envs_pb2.END_REASON_UNSPECIFIED
        if result.terminated:
            reason = envs_pb2.END_REASON_TERMINATED
        elif truncated:
            reason = envs_pb2.END_REASON_MAX_TURNS
        response = envs_pb2.StepResponse(
            step=step,
            reward=result.reward,
            terminated=result.terminated,
            truncated=truncated,
            end_reason=reason,
            metrics=result.metrics,
            mask_turn=result.mask_turn,
        )
        if result.messages:
            response.observation.CopyFrom(_observation(env_id, result.messages))
        elif not (result.terminated or truncated):
            raise self._broken(env_id, "step returned no messages although the episode goes on")
        return response

    def position(self, episode_id: str) -> envs_pb2.GetEpisodeResponse:
        """Return where an episode stands."""
        episode = self._get(episode_id)
        return envs_pb2.GetEpisodeResponse(
            task=episode.task,
            reset=episode.first,
            last_step=episode.last,
            next_step=episode.next_step,
            total_reward=episode.total_reward,
        )

    async def _call(self, episode: _Episode, method: Callable[..., Any], *arguments: Any) -> Any:
        env_id = episode.task.env_id
        try:
            async with asyncio.timeout(self._call_deadline_s):
                if inspect.iscoroutinefunction(method):
                    return await method(*arguments)
                return await asyncio.to_thread(method, *arguments)
        except TimeoutError:
            _failures.add(1, env_id=env_id, kind="TIMEOUT")
            raise DeadlineError(
                f"environment {env_id!r}: {method.__name__} took longer than "
                f"{self._call_deadline_s} s"
            ) from None
        except MoeraError:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise self._broken(
                env_id, f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            ) from error

    def _broken(self, env_id: str, what: str) -> InternalError:
        _failures.add(1, env_id=env_id, kind="ENVIRONMENT")
        return InternalError(f"environment {env_id!r}: {what}")


def _observation(env_id: str, shown: Messages) -> envs_pb2.Observation:
    if isinstance(shown, str):
        return envs_pb2.Observation(messages=[text_message(common_pb2.ROLE_USER, shown)])
    try:
        observation = envs_pb2.Observation(messages=shown)
    except TypeError:
        observation = envs_pb2.Observation()
    if not observation.messages:
        raise InternalError(
            f"environment {env_id!r}: an observation is a str or a list of Message, not "
            f"{type(shown).__name__} {str(shown)[:80]!r}"
        )
    return observation
