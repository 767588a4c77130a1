"""Files of one JSON object a line, written by a process that may be killed at any time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, none if it does not exist; a half-written one is skipped."""
    if not file.exists():
        return []
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:  # the last words of a killed writer
            continue
    return lines


def append(file: Path, *lines: Mapping[str, Any]) -> None:
    """Append lines, in one write."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(text)


def replace(file: Path, lines: list[dict[str, Any]]) -> None:
    """Write a file anew, whole or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    partial.replace(file)
