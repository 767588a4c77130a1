"""The engine on its own thread, for asyncio: requests in, tokens out, jobs between two steps."""

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from moera import telemetry
from moera.errors import InternalError, InvalidArgumentError, MoeraError
from services.rollout.engine import Engine, Output, Request

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

_IDLE_S = 0.5
_RATE_WINDOW_S = 10.0

_sampled = telemetry.counter("moera.rollout.sampled_tokens")


class EngineLoop:
    """Owns the engine's thread. All methods are called from the event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._listeners: dict[str, asyncio.Queue[Output | MoeraError]] = {}
        self._stopping = False
        self._rates: deque[tuple[float, int]] = deque()
        self.sampled_tokens = 0
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def num_sequences(self) -> int:
        """Requests in the engine."""
        return len(self._listeners)

    def tokens_per_second(self) -> float:
        """Return the rate of the last ten seconds."""
        now = time.monotonic()
        while self._rates and self._rates[0][0] < now - _RATE_WINDOW_S:
            self._rates.popleft()
        return sum(count for _, count in self._rates) / _RATE_WINDOW_S

    async def generate(self, request: Request) -> AsyncGenerator[Output, None]:
        """Yield a request's tokens; leaving early aborts it.

        Raises:
            InvalidArgumentError: the request can never fit.
            InternalError: the engine failed; the message says how.
        """
        if request.request_id in self._listeners:
            raise InvalidArgumentError(f"request id {request.request_id!r} is taken")
        outputs: asyncio.Queue[Output | MoeraError] = asyncio.Queue()
        self._listeners[request.request_id] = outputs
        try:
            await self.run(lambda engine: engine.add(request))
            while True:
                output = await outputs.get()
                if isinstance(output, MoeraError):
                    raise output
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            del self._listeners[request.request_id]
            # For a finished request this does nothing.
            self._jobs.put(lambda: self._engine.abort(request.request_id))

    async def run(self, job: Callable[[Engine], ResultT]) -> ResultT:
        """Run a job on the engine's thread, between two steps."""
        done: asyncio.Future[ResultT] = self._loop.create_future()

        def work() -> None:
            try:
                result = job(self._engine)
            except Exception as error:
                self._post(_set_exception, done, error)
            else:
                self._post(_set_result, done, result)

        self._jobs.put(work)
        return await done

    async def stop(self) -> None:
        """End the thread after the step it is in."""
        self._stopping = True
        self._jobs.put(lambda: None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while not self._stopping:
            self._run_jobs(wait=not self._engine.busy)
            if not self._engine.busy:
                continue
            try:
                outputs = self._engine.step()
            except Exception as error:
                log.exception("engine step failed")
                self._post(self._fail_all, f"{type(error).__name__}: {error}")
                self._run_jobs(wait=True)
            else:
                self._post(self._deliver, outputs)

    def _run_jobs(self, wait: bool) -> None:
        try:
            job = self._jobs.get(timeout=_IDLE_S) if wait else self._jobs.get_nowait()
            while True:
                job()
                job = self._jobs.get_nowait()
        except queue.Empty:
            pass

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _deliver(self, outputs: list[Output]) -> None:
        self.sampled_tokens += len(outputs)
        self._rates.append((time.monotonic(), len(outputs)))
        _sampled.add(len(outputs))
        for output in outputs:
            listener = self._listeners.get(output.request_id)
            if listener:
                listener.put_nowait(output)

    def _fail_all(self, why: str) -> None:
        for listener in self._listeners.values():
            listener.put_nowait(InternalError(f"the engine failed: {why}"))


def _set_result(future: asyncio.Future, result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
