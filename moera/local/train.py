"""`moera train`: one run from configuration to report.

    config file -> resolved config in runs/<id>/config.toml
    redis, cache, envs, rollouts, learner as child processes
    until the learner is done -> stop the others -> what the run achieved

Ctrl-C stops every process; `moera train --resume <id>` goes on.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from moera import config, jsonl
from moera.errors import ConfigError, MoeraError
from moera.local import redis
from moera.local.monitor import Monitor, Reading
from moera.local.ports import free_ports
from moera.local.progress import Progress
from moera.local.supervisor import Command, Supervisor
from moera.report.summary import summary_lines


def shown(path: Path) -> str:
    """Return a path as a user would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def new_run(file: Path, flags: Sequence[str]) -> Any:
    """Read a run file, give the run an id, and create its folder.

    Raises:
        ConfigError: the file is wrong, or the run exists already.
    """
    run: Any = config.load_files(config.run_config_model(), [file], flags, "moera train")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    run_id = config.check_run_id(run.run.id or f"{run.run.name}-{stamp}")
    run = config.resolved(
        run,
        run={"id": run_id, "dir": run.run.dir.absolute()},
        model={"path": str(_model_folder(run.model.path, file))},
    )
    _check(run)
    if (run.run.path / "config.toml").exists():
        raise ConfigError(
            f"run {run_id!r} exists in {run.run.dir}: go on with `moera train --resume {run_id}` "
            "or choose another run.id"
        )
    return run


def old_run(run_id: str, runs: Path, flags: Sequence[str]) -> Any:
    """Read the resolved configuration of an earlier run, to go on with it.

    Raises:
        ConfigError: there is no such run.
    """
    file = runs / config.check_run_id(run_id) / "config.toml"
    if not file.exists():
        known = sorted(path.parent.name for path in runs.glob("*/config.toml"))
        raise ConfigError(f"no run {run_id!r} in {runs}; known runs: {', '.join(known) or 'none'}")
    run: Any = config.load_files(config.run_config_model(), [file], flags, "moera train")
    _check(run)
    return run


def _model_folder(path: str, file: Path) -> Path:
    """A relative path is looked up beside the run file first, then in the current folder."""
    beside = file.parent / path
    return (beside if beside.is_dir() else Path(path)).absolute()


def _check(run: Any) -> None:
    from moera.models.folder import check_folder

    check_folder(run.model.path)
    ids = [environment.id for environment in run.environment]
    if not ids:
        raise ConfigError("the run has no [[environment]]: add at least one")
    if len(set(ids)) < len(ids):
        raise ConfigError(f"environment ids must differ: {ids}")
    for environment in run.environment:
        if bool(environment.entry) == bool(environment.address):
            raise ConfigError(f"environment {environment.id!r}: set either entry or address")


def _with_ports(run: Any) -> Any:
    """Give every service a free port; a restarted service keeps its own."""
    cache, envs, learner, *rollouts = (
        f"127.0.0.1:{port}" for port in free_ports(3 + run.local.num_rollouts)
    )
    addresses = {"cache": cache, "envs": envs, "learner": learner, "rollouts": rollouts}
    sections: dict[str, dict[str, Any]] = {"addresses": addresses}
    for name in ("cache", "envs", "learner"):
        # A port that the user chose is kept, and an error if it is taken.
        chosen = getattr(run, name).listen
        if not chosen.endswith(":0"):
            addresses[name] = chosen
        sections[name] = {"listen": addresses[name]}
    return config.resolved(run, **sections)


def _commands(run: Any, file: Path) -> list[Command]:
    """Return the services in start order."""

    def service(name: str, process: str, *flags: str, **options: Any) -> Command:
        # -P keeps a folder `services` of the user's from shadowing ours.
        argv = (sys.executable, "-P", "-m", f"services.{name}", "--config", str(file), *flags)
        # Five reasoning-gym families depend on the hash seed.
        return Command(process, argv, {"PYTHONHASHSEED": "0"}, **options)

    rollouts = [
        service(
            "rollout",
            f"rollout-{index}",
            *("--rollout.listen", address, "--rollout.server_id", f"rollout-{index}"),
        )
        for index, address in enumerate(run.addresses.rollouts)
    ]
    return [
        service("cache", "cache", stop_order=1),
        service("envs", "envs", stop_order=1),
        service("learner", "learner", must_finish=True),
        *rollouts,
    ]


async def run_locally(run: Any, console: Console) -> None:
    """Run all services until the learner is done, a process fails for good, or Ctrl-C.

    Raises:
        ProcessFailedError: a process failed for good.
        KeyboardInterrupt: the user stopped the run.
    """
    started = time.monotonic()
    run = _with_ports(run)
    if not run.cache.redis_url:
        (port,) = free_ports(1)
        own_redis = redis.command(run.run.path / "redis", port)
        run = config.resolved(run, cache={"redis_url": f"redis://127.0.0.1:{port}/0"})
    else:
        own_redis = None
    file = run.run.path / "local.toml"
    config.write(run, file)
    supervisor = Supervisor(run.run.path, run.local.max_restarts)
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    where = shown(run.run.path)
    console.print(f"run [bold]{run.run.id}[/] in {where}", highlight=False, soft_wrap=True)
    try:
        if own_redis:
            await supervisor.start(own_redis)
        for command in _commands(run, file):
            await supervisor.start(command)
        await _watch(run, supervisor, interrupted, console)
    finally:
        await supervisor.stop(run.local.stop_seconds)
    if supervisor.failure:
        raise supervisor.failure
    if interrupted.is_set():
        raise KeyboardInterrupt
    console.print(f"finished in {time.monotonic() - started:.0f} s", highlight=False)


async def _watch(
    run: Any, supervisor: Supervisor, interrupted: asyncio.Event, console: Console
) -> None:
    monitor = Monitor(run.addresses)
    ends = [asyncio.create_task(event.wait()) for event in (supervisor.finished, interrupted)]
    try:
        with Progress(console, run.run.id) as progress:
            while not any(end.done() for end in ends):
                reading = await monitor.read()
                jsonl.append(run.run.path / "monitor.jsonl", reading.line())
                progress.show(reading, supervisor.children)
                await asyncio.wait(ends, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await monitor.close()


async def attach(run: Any, console: Console) -> None:
    """Show an existing deployment until its learner is done or Ctrl-C; nothing is started."""
    monitor = Monitor(run.addresses)
    try:
        with Progress(console, run.run.name) as progress:
            while True:
                reading = await monitor.read()
                progress.show(reading, {})
                if _finished(reading):
                    return
                await asyncio.sleep(1.0)
    finally:
        await monitor.close()


def _finished(reading: Reading) -> bool:
    from moera.v1 import learner_pb2

    return bool(reading.learner and reading.learner.phase == learner_pb2.LEARNER_PHASE_FINISHED)


def write_pages(run_path: Path, console: Console) -> None:
    """Print what the run achieved, and write report.html and trace.html."""
    from moera.report.curves import write_report
    from moera.report.waterfall import write_trace

    for line in summary_lines(run_path):
        console.print(line, highlight=False, soft_wrap=True)
    for name, write in (("report", write_report), ("trace", write_trace)):
        page = run_path / f"{name}.html"
        try:
            write(run_path, page)
        except MoeraError as error:  # such as a run that sends its traces to a collector
            console.print(f"no {name}: {error}", highlight=False, soft_wrap=True)
        else:
            console.print(f"{name}: {shown(page)}", highlight=False, soft_wrap=True)
