"""Shared fixtures: a real Redis for each test session."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from moera.local import redis as local_redis
from moera.local.ports import free_ports
from tests.runs import Trainer


def free_port() -> int:
    """Return a TCP port that nobody listens on right now."""
    return free_ports(1)[0]


def start_redis(folder: Path, port: int, *more: str) -> subprocess.Popen:
    """Start a Redis as a local run does, and wait until it answers."""
    command = local_redis.command(folder, port)
    server = subprocess.Popen([*command.argv, *more], stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port, retry=Retry(NoBackoff(), 0))
    for _ in range(200):
        try:
            client.ping()
            break
        except redis.exceptions.AuthenticationError:  # it answers; who may enter is the test's
            break
        except redis.exceptions.RedisError:
            time.sleep(0.05)
    client.close()
    return server


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis of this test session."""
    port = free_port()
    server = start_redis(tmp_path_factory.mktemp("redis"), port)
    yield f"redis://127.0.0.1:{port}/0"
    server.kill()
    server.wait()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    """Starts small runs in a temporary folder."""
    made = Trainer(tmp_path)
    yield made
    made.stop()
