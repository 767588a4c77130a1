"""Naming the machine that a figure was measured on."""

import os
import platform
from pathlib import Path


def describe() -> str:
    """Return processor, usable cores, memory and Python, in one line."""
    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {cores} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"
