"""Child processes: started, watched, restarted within a budget, and stopped in order.

- A child that exits with 2 (a configuration error) fails the run at once; so does one that has
  used up its restarts. The reason is the last line of the child's log.
- A child dies with its supervisor (Linux), so that kill -9 leaves no orphan.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moera.errors import MoeraError

CONFIG_ERROR_EXIT = 2
_PR_SET_PDEATHSIG = 1
_HEALTHY_AFTER_S = 60.0


class ProcessFailedError(MoeraError):
    """A child process failed for good; the message ends with its last log line."""


@dataclass(frozen=True)
class Command:
    """How a child is started."""

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    stop_order: int = 0
    """Children with a lower number are stopped, and awaited, first."""
    must_finish: bool = False
    """Exit code 0 means that its work is done; every other child should run for ever."""


@dataclass
class Child:
    """A child and its fate so far."""

    command: Command
    log: Path
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    state: str = "starting"
    started: float = 0.0

    @property
    def pid(self) -> int | None:
        """Process id, or None when it is not running."""
        running = self.process is not None and self.process.returncode is None
        return self.process.pid if self.process and running else None


class Supervisor:
    """Keeps children running until they finish, fail for good, or are stopped.

    Their pids and states are in `processes.json` of the run's folder.
    """

    def __init__(self, folder: Path, max_restarts: int) -> None:
        self.children: dict[str, Child] = {}
        self._folder = folder
        self._logs = folder / "logs"
        self._max_restarts = max_restarts
        self._stopping = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.finished = asyncio.Event()
        self.failure: ProcessFailedError | None = None
        self._logs.mkdir(parents=True, exist_ok=True)

    async def start(self, command: Command) -> Child:
        """Start a child and watch it."""
        child = Child(command, self._logs / f"{command.name}.log")
        self.children[command.name] = child
        await self._spawn(child)
        self._tasks[command.name] = asyncio.create_task(self._watch(child), name=command.name)
        return child

    async def _spawn(self, child: Child) -> None:
        with child.log.open("ab") as log:
            child.process = await asyncio.create_subprocess_exec(
                *child.command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **child.command.environment},
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )
        child.started = time.monotonic()
        self._record(child, "running")

    def _record(self, child: Child, state: str) -> None:
        child.state = state
        table = {
            name: {"pid": each.pid, "state": each.state, "restarts": each.restarts}
            for name, each in self.children.items()
        }
        partial = self._folder / "processes.json.partial"
        partial.write_text(json.dumps(table, indent=1))
        partial.replace(self._folder / "processes.json")

    async def _watch(self, child: Child) -> None:
        while child.process is not None:
            code = await child.process.wait()
            if self._stopping:
                self._record(child, "stopped")
                return
            if code == 0 and child.command.must_finish:
                self._record(child, "finished")
                self.finished.set()
                return
            if time.monotonic() - child.started > _HEALTHY_AFTER_S:
                # Only a process that keeps dying uses up its budget, not one that was unlucky
                # a few times in a long run.
                child.restarts = 0
            if code == CONFIG_ERROR_EXIT or child.restarts >= self._max_restarts:
                self._fail(child, code)
                return
            child.restarts += 1
            self._record(child, "restarting")
            await asyncio.sleep(min(5.0, 0.25 * 2 ** min(child.restarts, 5)))
            if not self._stopping:
                await self._spawn(child)

    def _fail(self, child: Child, code: int) -> None:
        self._record(child, "failed")
        why = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        tried = f" after {child.restarts} restarts" if child.restarts else ""
        self.failure = ProcessFailedError(
            f"{child.command.name} failed ({why}{tried}); log: {child.log}\n{last_line(child.log)}"
        )
        self.finished.set()

    async def stop(self, within_s: float) -> None:
        """Stop all children by SIGTERM in stop order, then kill what is left."""
        self._stopping = True
        end = time.monotonic() + within_s
        orders = sorted({child.command.stop_order for child in self.children.values()})
        for position, order in enumerate(orders):
            batch = [c for c in self.children.values() if c.command.stop_order == order]
            for child in batch:
                _send(child, signal.SIGTERM)
            # A slow stage must leave the later ones their share of the time.
            share = (end - time.monotonic()) / (len(orders) - position)
            await _wait(batch, max(0.2, share if position else 2 * share))
        for child in self.children.values():
            _send(child, signal.SIGKILL)
        await _wait(list(self.children.values()), 2.0)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _wait(children: list[Child], timeout_s: float) -> None:
    waits = [child.process.wait() for child in children if child.process]
    if waits:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waits), timeout_s)


def _send(child: Child, number: signal.Signals) -> None:
    if child.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)


def _die_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask_kernel


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, or ""."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "")
