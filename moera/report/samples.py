"""Whole conversations of a run, for the page and for the terminal."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from moera import jsonl
from moera.errors import NotFoundError

_TERMINAL = {
    "prompt": "bright_black",
    "policy": "green",
    "masked": "red",
    "environment": "yellow",
}


def _kind(segment: dict[str, Any]) -> str:
    masked = segment["source"] == "policy" and not segment["trained"]
    return "masked" if masked else segment["source"]


def _title(line: dict[str, Any]) -> str:
    reason = line["finish_reason"].removeprefix("FINISH_REASON_").lower()
    parts = [
        f"step {line['step']}",
        line["env_id"],
        f"reward {line['reward']:g}",
        reason,
        f"version {', '.join(line['versions'])}",
        line["sample_id"],
    ]
    if line["num_resumes"]:
        parts.append(f"moved {line['num_resumes']} times")
    return "  ·  ".join(parts)


def spread(samples: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the conversations of `count` steps, spread evenly from the first to the last."""
    steps = sorted({line["step"] for line in samples})
    if len(steps) > count:
        places = [round(index * (len(steps) - 1) / (count - 1)) for index in range(count)]
        steps = [steps[place] for place in places]
    return [line for line in samples if line["step"] in steps]


def as_html(line: dict[str, Any]) -> str:
    """Return a conversation as a block of the page."""
    sequences = "<hr>".join(
        "".join(
            f'<span class="{_kind(segment)}">{html.escape(segment["text"])}</span>'
            for segment in sequence
        )
        for sequence in line["sequences"]
    )
    title = html.escape(_title(line))
    return f'<div class="sample"><h3>{title}</h3><pre>{sequences}</pre></div>'


def print_samples(run: Path, console: Console, *, step: int | None, count: int) -> None:
    """Print conversations of a step (default: the last one).

    Raises:
        NotFoundError: no conversation of that step was kept.
    """
    samples = jsonl.read(run / "samples.jsonl")
    if not samples:
        raise NotFoundError(f"run {run.name!r} has no conversations yet")
    wanted = samples[-1]["step"] if step is None else step
    chosen = [line for line in samples if line["step"] == wanted]
    if not chosen:
        raise NotFoundError(
            f"no conversation of step {wanted}; steps {samples[0]['step']} to {samples[-1]['step']}"
        )
    for line in chosen[:count]:
        text = Text()
        for number, sequence in enumerate(line["sequences"]):
            text.append("\n--- next sequence\n" if number else "", style="bold")
            for segment in sequence:
                text.append(segment["text"], style=_TERMINAL[_kind(segment)])
        console.print(Panel(text, title=_title(line), title_align="left"))
