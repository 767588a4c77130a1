"""Connecting to Redis, and refusing one that could lose experience."""

import logging
from typing import Any
from urllib.parse import urlsplit

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError

from moera.errors import ConfigError, UnavailableError
from services.cache.keys import SCHEMA_VERSION, prefix

log = logging.getLogger(__name__)

_FLOOR = (6, 2)


def connect(url: str, timeout_s: float) -> Any:
    """Return a client that retries each command three times; its replies are bytes.

    Raises:
        ConfigError: the URL is empty or malformed.
    """
    if not url:
        raise ConfigError("cache.redis_url is empty: set it, for example redis://127.0.0.1:6379/0")
    try:
        return aioredis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            health_check_interval=15,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
            retry_on_error=[ConnectionError],
        )
    except ValueError as error:
        raise ConfigError(f"cache.redis_url: {error}") from None


def shown(url: str) -> str:
    """Return the URL without credentials, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}"


async def check(client: Any, run_id: str, url: str) -> None:
    """Refuse a Redis that is too old, may evict keys, or holds another key schema.

    Raises:
        ConfigError: with what to change.
        UnavailableError: no Redis there.
    """
    try:
        server = await client.info("server")
        memory = await client.info("memory")
        persistence = await client.info("persistence")
        found = await client.get(prefix(run_id) + "schema")
    except ResponseError as error:
        raise ConfigError(f"Redis at {shown(url)} refuses: {error}") from None
    except RedisError as error:
        raise UnavailableError(f"Redis at {shown(url)} does not answer: {error}") from None
    version = str(server["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < _FLOOR:
        raise ConfigError(f"Redis at {shown(url)} is {version}; moera needs 6.2 or later")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"Redis at {shown(url)} has maxmemory-policy {policy}, which may drop experience when "
            "memory is short; set `maxmemory-policy noeviction`"
        )
    if not persistence.get("aof_enabled"):
        log.warning("Redis has no AOF: its death loses experience; set `appendonly yes`")
    if found not in (None, SCHEMA_VERSION.encode()):
        raise ConfigError(
            f"run {run_id} has key schema {found.decode()}, this version of moera "
            f"{SCHEMA_VERSION}: use the version that began the run, or another run id"
        )
    await client.set(prefix(run_id) + "schema", SCHEMA_VERSION)
