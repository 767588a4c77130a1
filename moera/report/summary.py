"""What a run achieved, in a few lines."""

import json
from pathlib import Path
from typing import Any


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def headline(run: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the first and the last headline evaluation over all environments, if there are two."""
    evals = [
        line for line in _lines(run / "evals.jsonl") if line["headline"] and line["env_id"] == "all"
    ]
    return (evals[0], evals[-1]) if len(evals) > 1 else None


def summary_lines(run: Path) -> list[str]:
    """Return held-out success before and after training, for all and for each environment."""
    found = headline(run)
    if found is None:
        return ["no two headline evaluations: nothing to compare"]
    first, last = found
    lines = _lines(run / "evals.jsonl")
    names = sorted({line["env_id"] for line in lines} - {"all"})
    shown = []
    for name in ["all", *names]:
        before, after = (
            next(
                line for line in lines if line["eval_id"] == e["eval_id"] and line["env_id"] == name
            )
            for e in (first, last)
        )
        rise = 100 * (after["success_rate"] - before["success_rate"])
        shown.append(
            f"held-out success {name:24s} {before['success_rate']:6.1%} -> "
            f"{after['success_rate']:6.1%}  ({rise:+.1f} points, "
            f"{after['num_tasks']} tasks, steps {before['step']} -> {after['step']})"
        )
    return shown
