"""The live view of a run: one screen on a terminal, one line for each step elsewhere."""

from collections.abc import Mapping
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from moera.local.monitor import Reading
from moera.local.supervisor import Child
from moera.v1 import learner_pb2

_COUNTS = ("pending", "leased", "committed", "ready", "assigned", "trained")
_LOST = ("evicted", "dropped", "failed")


class Progress:
    """Shows readings as they come."""

    def __init__(self, console: Console, run_id: str) -> None:
        self._console = console
        self._run_id = run_id
        self._last_step = -1
        self._learner: learner_pb2.GetLearnerStatusResponse | None = None
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.__exit__(None, None, None)

    def show(self, reading: Reading, children: Mapping[str, Child]) -> None:
        """Update the screen, or print a line when a step was finished."""
        # A learner that is being restarted, or has just finished, still stands where it stood.
        self._learner = reading.learner or self._learner
        reading = replace(reading, learner=self._learner)
        if self._live:
            self._live.update(screen(self._run_id, reading, children))
        elif reading.learner and reading.learner.version.step != self._last_step:
            self._last_step = reading.learner.version.step
            self._console.print(step_line(reading), highlight=False, soft_wrap=True)


def step_line(reading: Reading) -> str:
    """Return one line about the newest step."""
    learner = reading.learner
    if learner is None:
        return "learner: not answering"
    metrics = learner.metrics
    parts = [f"step {learner.version.step}/{learner.num_steps}"]
    for name, label, form in (
        ("reward_mean", "reward", ".3f"),
        ("success_rate", "success", ".3f"),
        ("staleness_mean", "staleness", ".2f"),
        ("response_tokens_mean", "response tokens", ".1f"),
        ("tokens_per_second", "learner tok/s", ".0f"),
    ):
        if name in metrics:
            parts.append(f"{label} {metrics[name]:{form}}")
    parts.append(f"rollout tok/s {reading.rollout_tokens_per_second:.0f}")
    if reading.cache:
        parts.append(f"ready groups {reading.cache.ready_groups}")
    return "  ".join(parts)


def screen(run_id: str, reading: Reading, children: Mapping[str, Child]) -> RenderableType:
    """Return the whole screen."""
    return Panel(
        Group(_training(reading), _buffer(reading), _processes(reading, children)),
        title=f"moera train  {run_id}",
        border_style="cyan",
    )


def _training(reading: Reading) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    learner = reading.learner
    if learner is None:
        table.add_row("learner", "starting or restarting")
        return table
    phase = learner_pb2.LearnerPhase.Name(learner.phase).removeprefix("LEARNER_PHASE_").lower()
    table.add_row(
        f"step {learner.version.step}/{learner.num_steps}",
        ProgressBar(total=max(1, learner.num_steps), completed=learner.version.step, width=40),
        phase,
    )
    metrics = learner.metrics
    row = [
        f"{label} [bold]{metrics[name]:{form}}[/]"
        for name, label, form in (
            ("reward_mean", "reward", ".3f"),
            ("success_rate", "success", ".3f"),
            ("staleness_mean", "staleness", ".2f"),
            ("tokens_per_second", "learner tok/s", ",.0f"),
        )
        if name in metrics
    ]
    table.add_row(*row, f"rollout tok/s [bold]{reading.rollout_tokens_per_second:,.0f}[/]")
    return table


def _buffer(reading: Reading) -> RenderableType:
    table = Table(title="samples in the cache", title_justify="left", expand=True)
    for name in (*_COUNTS, *_LOST):
        table.add_column(name, justify="right", style="yellow" if name in _LOST else "")
    if reading.cache:
        counts = reading.cache.counts
        table.add_row(*(f"{getattr(counts, name):,}" for name in (*_COUNTS, *_LOST)))
    return table


def _processes(reading: Reading, children: Mapping[str, Child]) -> RenderableType:
    table = Table(title="processes", title_justify="left", expand=True)
    for name in ("process", "pid", "state", "restarts", "health"):
        table.add_column(name)
    for name, child in children.items():
        good = child.state in {"running", "finished"}
        state = f"[{'green' if good else 'red'}]{child.state}[/]"
        health = _health(name, reading)
        table.add_row(name, str(child.pid or "-"), state, str(child.restarts), health)
    return table


def _health(name: str, reading: Reading) -> str:
    if name.startswith("rollout-"):
        index = int(name.removeprefix("rollout-"))
        server = reading.rollouts[index] if index < len(reading.rollouts) else None
        if server is None:
            return "not answering"
        version = f"{server.version.epoch}.{server.version.step}"
        ready = "ready" if server.ready else server.reason or "not ready"
        return f"{ready}, version {version}, {server.running_samples} samples"
    if name == "redis":
        return f"{reading.cache.used_memory_bytes / 2**20:.0f} MiB" if reading.cache else "-"
    if name == "learner" and reading.learner:
        return f"at step {reading.learner.version.step}"
    answer = {"cache": reading.cache, "envs": reading.envs}.get(name)
    if name == "envs" and reading.envs:
        return f"{reading.envs.open_episodes} open episodes"
    return "answering" if answer else "not answering"
