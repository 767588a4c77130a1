"""How operators steer training: requests that the loop serves between two steps."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from moera.errors import FailedPreconditionError
from moera.v1 import learner_pb2
from moera.wire import Version


class Control:
    """Status of the learner and the wishes of its operators."""

    def __init__(self) -> None:
        self.version = Version(0, 0)
        self.phase: learner_pb2.LearnerPhase = learner_pb2.LEARNER_PHASE_STARTING
        self.checkpoint_step: int | None = None
        self.steps: Mapping[int, Mapping[str, float]] = {}
        self._running = asyncio.Event()
        self._running.set()
        self._standing = asyncio.Event()
        self._checkpoints: list[asyncio.Future[tuple[int, str]]] = []
        self._wish = asyncio.Event()
        self._closed = False

    def reached(
        self,
        version: Version,
        checkpoint_step: int | None,
        steps: Mapping[int, Mapping[str, float]],
    ) -> None:
        """Say where training stands."""
        self.version = version
        self.checkpoint_step = checkpoint_step
        self.steps = steps

    async def between_steps(self, save: Callable[[], Awaitable[str]]) -> None:
        """Serve wishes: write checkpoints that were asked for, and stand still while paused."""
        while True:
            while self._checkpoints:
                done = self._checkpoints.pop()
                uri = await save()
                if not done.done():
                    done.set_result((self.version.step, uri))
            if self._running.is_set():
                self._standing.clear()
                return
            self.phase = learner_pb2.LEARNER_PHASE_PAUSED
            self._standing.set()
            self._wish.clear()
            await self._wish.wait()

    async def pause(self) -> int:
        """Stop before the next step; returns the step after which training stands still."""
        self._refuse_when_finished()
        self._running.clear()
        self._wish.set()
        await self._standing.wait()
        return self.version.step

    def resume(self) -> None:
        """Go on."""
        self._running.set()
        self._wish.set()

    async def save_checkpoint(self) -> tuple[int, str]:
        """Ask for a checkpoint; returns its step and where it lies, once it is durable."""
        self._refuse_when_finished()
        done: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._checkpoints.append(done)
        self._wish.set()
        return await done

    def close(self) -> None:
        """Say that there is no next step: there is nothing left to stop before."""
        self._closed = True

    def _refuse_when_finished(self) -> None:
        if self._closed:
            raise FailedPreconditionError(
                "all steps are done: the last checkpoint is durable and no step follows"
            )
