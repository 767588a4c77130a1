"""Whole runs as a user starts them: `moera train` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moera.v1 import cache_pb2

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples" / "quickstart.toml"

# Small enough for a minute on two cores; everything else is the quickstart.
SMALL = {
    "learner.num_steps": "6",
    "learner.groups_per_step": "4",
    "learner.group_size": "4",
    "learner.evaluation.num_tasks": "8",
    "learner.evaluation.every": "0",
    "learner.checkpoint.every": "2",
    "telemetry.metrics_interval_s": "1",
}


@dataclass
class TrainRun:
    """A running or finished `moera train`."""

    folder: Path
    process: subprocess.Popen
    output: Path

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of one of the run's .jsonl files."""
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def steps(self) -> list[int]:
        """Return the steps that the learner finished."""
        return [line["step"] for line in self.lines("metrics.jsonl")]

    def counts(self) -> dict[str, int]:
        """Return the last accounting that the cache reported."""
        readings = [line["counts"] for line in self.lines("monitor.jsonl") if line["counts"]]
        return readings[-1]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one of the run's services; returns the pid it had."""
        pid = self.processes()[name]["pid"]
        os.kill(pid, number)
        return pid

    def processes(self) -> dict[str, dict[str, Any]]:
        """Return the supervisor's table."""
        file = self.folder / "processes.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition, failing with the output if it or the run ends first."""
        end = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None and not condition():
                pytest.fail(f"the run ended early:\n{self.tail()}")
            if time.monotonic() > end:
                pytest.fail(f"not reached in {seconds} s:\n{self.tail()}")
            time.sleep(0.1)

    def wait(self, seconds: float) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s:\n{self.tail()}")

    def tail(self) -> str:
        """Return the end of the output and of every log."""
        parts = [self.output.read_text()[-2000:]]
        for log in sorted((self.folder / "logs").glob("*.log")):
            parts.append(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
        return "\n".join(parts)


class Trainer:
    """Starts runs in a folder of its own and kills what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self._folder = folder
        self._started: list[TrainRun] = []

    def start(self, *arguments: str, run_id: str = "small", config: Path = QUICKSTART) -> TrainRun:
        """Start a new small run; `arguments` are appended."""
        flags = [part for key, value in SMALL.items() for part in (f"--{key}", value)]
        flags += ["--run.id", run_id, "--run.dir", str(self.runs), *arguments]
        return self._run([str(config), *flags], run_id)

    def resume(self, run_id: str = "small") -> TrainRun:
        """Go on with a run."""
        return self._run(["--resume", run_id, "--runs", str(self.runs)], run_id)

    def _run(self, arguments: list[str], run_id: str) -> TrainRun:
        output = self._folder / f"output-{len(self._started)}.txt"
        with output.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "moera.cli", "train", *arguments],
                cwd=ROOT,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        run = TrainRun(self.runs / run_id, process, output)
        self._started.append(run)
        return run

    def stop(self) -> None:
        """Kill every run; their services die with them."""
        for run in self._started:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()


def assert_balanced(counts: dict[str, int]) -> None:
    """Check the accounting identity of a reading."""
    assert counts["enqueued"] == sum(value for name, value in counts.items() if name != "enqueued")


def assert_steps_once(run: TrainRun, num_steps: int) -> None:
    """Check that every step was finished, in order, and none twice."""
    assert run.steps() == list(range(1, num_steps + 1))


def assignments(run: TrainRun) -> dict[str, bytes]:
    """Return the batches handed out so far, by step."""
    folder = run.folder / "objects" / "assignments"
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*"))}


def assert_trained_once(run: TrainRun) -> None:
    """Check that no sample is in two batches."""
    ids = [
        sample.sample_id
        for batch in assignments(run).values()
        for group in cache_pb2.TakeBatchResponse.FromString(batch).groups
        for sample in group.samples
    ]
    assert len(ids) == len(set(ids)) > 0
