"""Does it train? `python -m bench.quickstart`: three seeds, and three with shuffled rewards.

Prints a table of held-out success before and after, as Markdown, and the wall time of each run
from the start of `moera train` to its end. Nothing is chosen: every run that was started is shown.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import machine
from moera.report.summary import summary_rows

_ROOT = Path(__file__).parents[1]
_RUNS = {
    "quickstart": _ROOT / "examples" / "quickstart.toml",
    "shuffled rewards": _ROOT / "examples" / "quickstart" / "shuffled.toml",
}


def run(file: Path, runs: Path, run_id: str, seed: int) -> float:
    """Train once; returns seconds."""
    flags = ("--run.dir", str(runs), "--run.id", run_id, "--run.seed", str(seed))
    began = time.monotonic()
    command = [sys.executable, "-m", "moera.cli", "train", str(file), *flags]
    subprocess.run(command, check=True, cwd=_ROOT, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, help="keep the runs here")
    arguments = parser.parse_args()
    runs = arguments.runs or Path(tempfile.mkdtemp())
    print(f"Machine: {machine.describe()}\n")
    print("| run | seed | held-out success before | after | points | by environment | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name, file in _RUNS.items():
        for seed in arguments.seeds:
            run_id = f"{name.split()[0]}-seed{seed}"
            seconds = run(file, runs.absolute(), run_id, seed)
            whole, *parts = summary_rows(runs / run_id)
            by_environment = ", ".join(
                f"{row.name} {row.before:.1%} to {row.after:.1%}" for row in parts
            )
            print(
                f"| {name} | {seed} | {whole.before:.1%} | {whole.after:.1%} | "
                f"{whole.points:+.1f} | {by_environment} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
