"""Does it survive? `python -m bench.chaos`: kill -9 every process of a run once, in mid-training.

Runs the quickstart with two rollout servers, kills one process after the other, and prints what
became of the run: every step happened once, no sample was trained twice, the accounting balances,
and what held-out success came to.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import machine
from moera import jsonl
from moera.report.summary import summary_lines
from moera.v1 import cache_pb2

_ROOT = Path(__file__).parents[1]
_VICTIMS = ("rollout-1", "cache", "rollout-0", "envs", "redis", "learner")
_RUN_ID = "chaos"


def _processes(run: Path) -> dict[str, Any]:
    file = run / "processes.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _steps(run: Path) -> list[int]:
    return [line["step"] for line in jsonl.read(run / "metrics.jsonl")]


def _trained_ids(run: Path) -> list[str]:
    return [
        sample.sample_id
        for file in sorted((run / "objects" / "assignments").glob("*"))
        for group in cache_pb2.TakeBatchResponse.FromString(file.read_bytes()).groups
        for sample in group.samples
    ]


def kill_all_in_turn(run: Path, pause_s: float) -> None:
    """Kill each process once, `pause_s` apart, from the third step on."""
    while len(_steps(run)) < 3:
        time.sleep(0.2)
    for name in _VICTIMS:
        step, pid = _steps(run)[-1], _processes(run)[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        print(f"  step {step:2d}: kill -9 {name}", flush=True)
        time.sleep(pause_s)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between two kills")
    arguments = parser.parse_args()
    runs = Path(tempfile.mkdtemp())
    run = runs / _RUN_ID
    print(f"Machine: {machine.describe()}")
    flags = ("--run.dir", str(runs), "--run.id", _RUN_ID, "--local.num_rollouts", "2")
    command = [sys.executable, "-m", "moera.cli", "train", "examples/quickstart.toml", *flags]
    began = time.monotonic()
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL) as training:
        kill_all_in_turn(run, arguments.pause)
        code = training.wait()
    print(f"exit code {code} after {time.monotonic() - began:.0f} s")
    restarts = {name: entry["restarts"] for name, entry in _processes(run).items()}
    print(f"restarts: {restarts}")
    steps, ids = _steps(run), _trained_ids(run)
    print(f"steps 1 to {steps[-1]}, each once: {steps == list(range(1, steps[-1] + 1))}")
    print(f"{len(ids)} samples assigned, none twice: {len(ids) == len(set(ids))}")
    counts = [line["counts"] for line in jsonl.read(run / "monitor.jsonl") if line["counts"]][-1]
    total = sum(value for name, value in counts.items() if name != "enqueued")
    print(f"accounting: {counts} balances: {total == counts['enqueued']}")
    print("\n".join(summary_lines(run)))


if __name__ == "__main__":
    main()
