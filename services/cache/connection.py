"""Connecting to Redis, and refusing one that could lose experience."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import redis.asyncio as aioredis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, ResponseError

from moera.errors import ConfigError, UnavailableError
from services.cache.config import CacheSection
from services.cache.iam import IamCredentials
from services.cache.keys import SCHEMA_VERSION, prefix

_FLOOR = (6, 2)


def connect(section: CacheSection) -> Any:
    """Return a client that retries each command three times; its replies are bytes.

    Raises:
        ConfigError: the URL is empty or malformed, or a certificate file is missing.
    """
    if not section.redis_url:
        raise ConfigError("cache.redis_url is empty: set it, for example redis://127.0.0.1:6379/0")
    kind = RedisCluster if section.redis_cluster else aioredis.Redis
    url, credentials = _credentials(section)
    try:
        return kind.from_url(
            url,
            socket_timeout=section.redis_timeout_s,
            socket_connect_timeout=section.redis_timeout_s,
            health_check_interval=15,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
            retry_on_error=[ConnectionError],
            **credentials,
            **_tls(section),
        )
    except (ValueError, RedisError) as error:
        raise ConfigError(f"cache.redis_url: {error}") from None


def _credentials(section: CacheSection) -> tuple[str, dict[str, Any]]:
    """Return the URL and what a client needs beside it to authenticate."""
    url = section.redis_url
    if not section.redis_iam_cache:
        return url, {}
    parts = urlsplit(url)
    if not parts.username or parts.password:
        raise ConfigError(
            "cache.redis_iam_cache: the URL names the IAM user and no password, for example "
            "rediss://moera@<endpoint>:6379"
        )
    provider = IamCredentials(
        unquote(parts.username), section.redis_iam_cache, serverless=section.redis_iam_serverless
    )
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, {"credential_provider": provider}


def _tls(section: CacheSection) -> dict[str, Any]:
    files = {
        "ssl_ca_certs": section.redis_ca_file,
        "ssl_certfile": section.redis_cert_file,
        "ssl_keyfile": section.redis_key_file,
    }
    for file in filter(None, files.values()):
        if not Path(file).is_file():
            raise ConfigError(f"cache: there is no certificate or key file {file}")
    return {name: file for name, file in files.items() if file}


async def server_info(client: Any, run_id: str, part: str) -> dict[str, Any]:
    """Return a part of INFO of the server that holds a run."""
    if not isinstance(client, RedisCluster):
        return await client.info(part)
    await client.initialize()
    node = client.get_node_from_key(prefix(run_id))
    return await client.info(part, target_nodes=node)


def shown(url: str) -> str:
    """Return the URL without credentials, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}"


async def check(client: Any, run_id: str, section: CacheSection) -> None:
    """Refuse a Redis that is too old, may evict or lose keys, or holds another key schema.

    Raises:
        ConfigError: with what to change.
        UnavailableError: no Redis there.
    """
    where = f"Redis at {shown(section.redis_url)}"
    try:
        server = await server_info(client, run_id, "server")
        memory = await server_info(client, run_id, "memory")
        persistence = await server_info(client, run_id, "persistence")
        found = await client.get(prefix(run_id) + "schema")
    except (AuthenticationError, ResponseError) as error:
        raise ConfigError(f"{where} refuses: {error}") from None
    except RedisError as error:
        raise UnavailableError(f"{where} does not answer: {error}") from None
    version = str(server["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < _FLOOR:
        raise ConfigError(f"{where} is {version}; moera needs 6.2 or later")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"{where} has maxmemory-policy {policy}, which may drop experience when memory is "
            "short; set `maxmemory-policy noeviction`"
        )
    if section.require_aof and not persistence.get("aof_enabled"):
        raise ConfigError(
            f"{where} has no append-only file: its death would lose experience. Set `appendonly "
            "yes`, or cache.require_aof = false if replicas or nothing shall keep it"
        )
    if found not in (None, SCHEMA_VERSION.encode()):
        raise ConfigError(
            f"run {run_id} has key schema {found.decode()}, this version of moera "
            f"{SCHEMA_VERSION}: use the version that began the run, or another run id"
        )
    await client.set(prefix(run_id) + "schema", SCHEMA_VERSION)
