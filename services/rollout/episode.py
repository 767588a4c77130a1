"""Playing one sample: environment and policy take turns until one of them ends it.

    reset -> [prompt -> sample -> step]* -> reward
      ^ resume, replay or restart

Errors of an environment become typed failures, never a reward. One that is away or full gives
the sample back instead: another server, or this one later, goes on.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moera import telemetry
from moera.env.client import EnvClient
from moera.errors import (
    DeadlineError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    MoeraError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from moera.v1 import common_pb2, envs_pb2
from moera.wire import Version
from services.rollout.chat import Chat
from services.rollout.config import RolloutSection
from services.rollout.engine import Request
from services.rollout.engine_loop import EngineLoop
from services.rollout.progress import Progress
from services.rollout.recording import Recording

_MAX_RESTARTS = 3


class SampleFailedError(MoeraError):
    """The sample has no reward; `kind` says why and `retryable` whether another try may help."""

    def __init__(self, kind: "common_pb2.FailureKind", message: str, retryable: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


class GiveBackError(MoeraError):
    """This server cannot go on with the sample now; it is not the sample's fault."""


class _EpisodeGoneError(MoeraError):
    """The environment does not know the episode any more."""


@dataclass(frozen=True)
class Stage:
    """What playing needs."""

    chat: Chat
    engine: EngineLoop
    environments: EnvClient
    section: RolloutSection
    max_positions: int
    """Longest sequence of the model."""


class Episode:
    """One sample being played. `progress` is whole between any two awaits."""

    def __init__(self, progress: Progress, token: int, stage: Stage) -> None:
        self.progress = progress
        self._token = token
        self._stage = stage
        self.opened = False
        """The environment holds the episode, and will until its lease runs out."""
        self.ended = False
        """Played to its end: there is nothing to go on with, only a trajectory to commit."""

    @property
    def address(self) -> str:
        """Where the episode lives."""
        return self.progress.endpoint or self._stage.environments.address(
            self.progress.group.task.env_id
        )

    async def play(self) -> common_pb2.Trajectory:
        """Play to the end; returns the trajectory with its reward.

        Raises:
            SampleFailedError: the sample has no reward.
            GiveBackError: it can be played, but not here and now.
        """
        restarts = 0
        while True:
            try:
                await self._open()
                self.opened = True
                trajectory = await self._to_the_end()
            except _EpisodeGoneError as error:
                self.opened = False
                restarts += 1
                if restarts > _MAX_RESTARTS:
                    kind = common_pb2.FAILURE_KIND_INFRASTRUCTURE
                    raise SampleFailedError(
                        kind, f"lost {restarts} times: {error}", True
                    ) from error
                self.progress = self.progress.pristine()
            else:
                self.ended = True
                return trajectory

    async def _to_the_end(self) -> common_pb2.Trajectory:
        reason = None
        while reason is None:
            reason = await self._turn()
        progress = self.progress
        if progress.total_reward is None:
            raise SampleFailedError(
                common_pb2.FAILURE_KIND_ENVIRONMENT,
                f"environment {progress.group.task.env_id!r} ended the episode, or the token "
                "budget did, before any step had a reward",
                False,
            )
        self._check_pinned()
        return progress.finished(reason, progress.total_reward)

    def _check_pinned(self) -> None:
        group = self.progress.group
        if not group.HasField("pinned_version"):
            return
        spans = [span for each in self.progress.recordings for span in each.version_spans]
        if any(span.version != group.pinned_version for span in spans):
            self.progress = self.progress.pristine()
            raise GiveBackError(
                f"weights changed under a sample pinned to {Version.of(group.pinned_version)}"
            )

    # -- opening ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        if not self.progress.recordings:
            await self._reset()
            self._start_sequence()
        elif not await self._goes_on():
            await self._replay()

    async def _reset(self) -> None:
        """Start an episode of its own for this attempt."""
        progress = self.progress
        progress.episode_id = f"{progress.sample_id}-{self._token}-{progress.num_restarts}"
        progress.endpoint = ""
        request = envs_pb2.ResetRequest(
            episode_id=progress.episode_id,
            task=progress.group.task,
            group_id=progress.group.group_id,
        )
        with telemetry.span(telemetry.RESET):
            response = await self._call("Reset", request)
        progress.endpoint = response.endpoint
        progress.env_version = response.env_version
        progress.tools = list(response.tools)
        if not progress.transcript:
            progress.transcript = list(response.observation.messages)
            if not progress.transcript:
                raise self._broken("reset returned no messages")

    async def _goes_on(self) -> bool:
        """Return whether the environment still holds the episode where the partial left it."""
        progress = self.progress
        try:
            position = await self._call(
                "GetEpisode", envs_pb2.GetEpisodeRequest(episode_id=progress.episode_id), 0.0
            )
        except (_EpisodeGoneError, GiveBackError, SampleFailedError):
            return False
        ahead = position.next_step - progress.next_step
        # A step that was taken but not heard of is repeated: same number, same action.
        return ahead == 0 or (ahead == 1 and self._turn_ended())

    async def _replay(self) -> None:
        """Rebuild a lost episode by its actions, if its environment is deterministic."""
        progress = self.progress
        try:
            info = await self._stage.environments.describe(progress.group.task.env_id)
        except MoeraError as error:
            raise GiveBackError(f"the environment does not answer: {error}") from error
        if not info.deterministic:
            raise _EpisodeGoneError("its environment is not deterministic: it starts again")
        if info.env_version != progress.env_version:
            raise _EpisodeGoneError("its environment has another version now: it starts again")
        await self._reset()
        for number, action in enumerate(progress.actions, start=1):
            await self._call(
                "Step",
                envs_pb2.StepRequest(episode_id=progress.episode_id, step=number, action=action),
            )

    # -- turns -----------------------------------------------------------------------------------

    async def _turn(self) -> "common_pb2.FinishReason | None":
        """Sample a turn and take its step; returns why the episode ended, if it did."""
        progress, chat = self.progress, self._stage.chat
        recording = progress.recordings[-1]
        if not self._turn_ended():
            budget = self._budget()
            if budget <= 0:
                return self._out_of_room()
            await self._sample(recording, budget)
        turn_ids = recording.token_ids[len(recording.token_ids) - progress.turn_tokens :]
        action = envs_pb2.Action(
            message=chat.parse(turn_ids), length_limited=turn_ids[-1] not in chat.stop_token_ids
        )
        with telemetry.span(telemetry.ENV_STEP):
            response = await self._call(
                "Step",
                envs_pb2.StepRequest(
                    episode_id=progress.episode_id, step=progress.next_step, action=action
                ),
            )
        self._check_step(response)
        return self._take(action, response)

    async def _sample(self, recording: Recording, budget: int) -> None:
        progress = self.progress
        group = progress.group
        turn = progress.next_step - 1
        stops = self._stage.chat.stop_token_ids | set(group.sampling.stop_token_ids)
        sequence = len(progress.recordings) - 1
        request = Request(
            # Two attempts at a sample may meet on one server when a lease ran out.
            f"{progress.sample_id}-{self._token}-{progress.num_restarts}",
            list(recording.token_ids),
            group.sampling,
            budget,
            noise_key=progress.sample_id if not sequence else f"{progress.sample_id}#{sequence}",
            sampling_seed=group.sampling_seed,
            stop_token_ids=frozenset(stops),
        )
        attributes = {"moera.turn": turn, "moera.prompt_tokens": len(recording.token_ids)}
        with telemetry.span(telemetry.TURN, attributes) as span, _engine_failures():
            async with contextlib.aclosing(self._stage.engine.generate(request)) as outputs:
                async for output in outputs:
                    recording.sampled(output, turn)
                    progress.turn_tokens += 1
            span.set_attribute("moera.sampled_tokens", progress.turn_tokens)

    def _turn_ended(self) -> bool:
        """Return whether the open turn has its last token already (it was resumed there)."""
        progress = self.progress
        if not progress.turn_tokens:
            return False
        sampling = progress.group.sampling
        last = progress.recordings[-1].token_ids[-1]
        stops = self._stage.chat.stop_token_ids | set(sampling.stop_token_ids)
        return last in stops or progress.turn_tokens >= sampling.max_new_tokens

    def _budget(self) -> int:
        progress = self.progress
        sampling = progress.group.sampling
        limit = min(sampling.max_total_tokens or 2**31, self._stage.max_positions)
        room = limit - len(progress.recordings[-1].token_ids)
        return min(sampling.max_new_tokens - progress.turn_tokens, room)

    def _out_of_room(self) -> "common_pb2.FinishReason":
        if not self.progress.actions:
            raise SampleFailedError(
                common_pb2.FAILURE_KIND_CONTEXT_OVERFLOW,
                f"the prompt has {len(self.progress.recordings[-1].token_ids)} tokens and leaves "
                "no room to sample: raise learner.sampling.max_total_tokens or drop the task",
                False,
            )
        return common_pb2.FINISH_REASON_LENGTH

    def _check_step(self, response: envs_pb2.StepResponse) -> None:
        values = {"reward": response.reward, **dict(response.metrics)}
        for name, value in values.items():
            if not math.isfinite(value):
                raise self._broken(f"{name} is {value}, not a finite number")
        if response.step != self.progress.next_step:
            raise self._broken(f"step {response.step} came instead of {self.progress.next_step}")
        ended = response.terminated or response.truncated
        if not ended and not response.observation.messages:
            raise self._broken("step returned no messages although the episode goes on")

    def _take(
        self, action: envs_pb2.Action, response: envs_pb2.StepResponse
    ) -> "common_pb2.FinishReason | None":
        """Write a step into the progress, at once: nothing is awaited in here."""
        progress = self.progress
        recording = progress.recordings[-1]
        if response.mask_turn:
            recording.mask_turn(progress.next_step - 1)
        if response.HasField("reward"):
            progress.total_reward = (progress.total_reward or 0.0) + response.reward
        progress.reward_terms += response.reward_terms
        progress.metrics.update(response.metrics)
        progress.actions.append(action)
        progress.turn_tokens = 0
        position = len(progress.transcript)
        progress.transcript += [action.message, *response.observation.messages]
        if response.terminated:
            return common_pb2.FINISH_REASON_TERMINATED
        if response.truncated or len(progress.actions) >= self._stage.section.max_turns:
            return common_pb2.FINISH_REASON_TRUNCATED
        if response.observation.replace_history:
            progress.conversation_start = position + 1
            self._start_sequence()
        else:
            self._continue_sequence(position - progress.conversation_start)
        return None

    def _start_sequence(self) -> None:
        progress = self.progress
        with self._template_failures():
            prompt = self._stage.chat.prompt(progress.conversation, progress.tools)
        recording = Recording()
        recording.given(prompt, progress.next_step - 1)
        progress.recordings.append(recording)

    def _continue_sequence(self, position: int) -> None:
        progress = self.progress
        recording = progress.recordings[-1]
        with self._template_failures():
            more = self._stage.chat.continuation(
                progress.conversation, progress.tools, position, recording.token_ids[-1]
            )
        if more is None:
            self._start_sequence()
        else:
            recording.given(more, progress.next_step - 1)

    # -- errors ----------------------------------------------------------------------------------

    def _broken(self, what: str) -> SampleFailedError:
        env_id = self.progress.group.task.env_id
        return SampleFailedError(
            common_pb2.FAILURE_KIND_ENVIRONMENT, f"environment {env_id!r}: {what}", True
        )

    @contextlib.contextmanager
    def _template_failures(self) -> Iterator[None]:
        try:
            yield
        except InvalidArgumentError as error:
            raise self._broken(str(error)) from error

    async def _call(self, method: str, request: Any, patience_s: float = -1.0) -> Any:
        try:
            return await self._stage.environments.call(self.address, method, request, patience_s)
        except (UnavailableError, ResourceExhaustedError) as error:
            raise GiveBackError(f"environment at {self.address}: {error}") from error
        except DeadlineError as error:
            kind = common_pb2.FAILURE_KIND_TIMEOUT
            raise SampleFailedError(kind, str(error), True) from error
        except (NotFoundError, FailedPreconditionError) as error:
            if method == "Reset":
                kind = common_pb2.FAILURE_KIND_ENVIRONMENT
                raise SampleFailedError(kind, str(error), False) from error
            raise _EpisodeGoneError(str(error)) from error
        except MoeraError as error:
            kind = common_pb2.FAILURE_KIND_ENVIRONMENT
            retryable = isinstance(error, InternalError)
            raise SampleFailedError(kind, str(error), retryable) from error


@contextlib.contextmanager
def _engine_failures() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        kind = common_pb2.FAILURE_KIND_CONTEXT_OVERFLOW
        raise SampleFailedError(kind, str(error), False) from error
    except InternalError as error:
        raise SampleFailedError(common_pb2.FAILURE_KIND_ENGINE, str(error), True) from error
