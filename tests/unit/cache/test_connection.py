import subprocess
import sys
from pathlib import Path

import pytest
import redis

from moera.errors import ConfigError, UnavailableError
from services.cache import connection
from services.cache.config import CacheSection


async def test_a_redis_that_may_evict_is_refused_with_the_fix(redis_url: str) -> None:
    own = redis.Redis.from_url(redis_url)
    own.config_set("maxmemory-policy", "allkeys-lru")
    section = CacheSection(redis_url=redis_url)
    client = connection.connect(section)
    try:
        with pytest.raises(ConfigError, match="set `maxmemory-policy noeviction`"):
            await connection.check(client, "x", section)
    finally:
        own.config_set("maxmemory-policy", "noeviction")
        own.close()
        await client.aclose()


async def test_a_run_of_another_key_schema_is_refused(redis_url: str) -> None:
    section = CacheSection(redis_url=redis_url)
    client = connection.connect(section)
    await client.set("moera:{other}:schema", "0")
    with pytest.raises(ConfigError, match="key schema 0"):
        await connection.check(client, "other", section)
    await client.aclose()


async def test_no_redis_is_a_clear_error_without_the_password() -> None:
    url = "redis://:secret@127.0.0.1:1/0"
    section = CacheSection(redis_url=url, redis_timeout_s=1.0)
    client = connection.connect(section)
    with pytest.raises(UnavailableError, match=r"Redis at redis://127\.0\.0\.1:1") as caught:
        await connection.check(client, "x", section)
    assert "secret" not in str(caught.value)
    await client.aclose()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "run.id is empty"),
        (("--run.id", "x"), "cache.redis_url is empty"),
        (("--run.id", "x", "--cache.redis_url", "http://h"), "cache.redis_url"),
        (("--cache.listenn", "x"), "listenn"),
    ],
)
def test_the_process_says_what_is_wrong_and_exits_with_2(tmp_path: Path, flags, message) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "services.cache", "--run.dir", str(tmp_path), *flags],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
