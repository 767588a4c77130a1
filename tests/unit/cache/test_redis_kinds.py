"""TLS, client certificates, Redis Cluster, users with few rights, and ElastiCache's IAM tokens."""

import asyncio
import datetime
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest
import redis
import trustme

from moera.errors import ConfigError, UnavailableError
from moera.objects import FileStore
from moera.v1 import cache_pb2, common_pb2
from moera.weights.encoder import ShardEncoder
from moera.weights.manifest import target_digest
from moera.wire import Version, pack
from services.cache import connection
from services.cache.config import CacheSection
from services.cache.experience import ExperienceStore
from services.cache.iam import IamCredentials
from services.cache.versions import VersionStore
from tests.conftest import free_port, start_redis

ACL = Path(__file__).parents[3] / "deploy" / "redis" / "users.acl"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


async def whole_life(section: CacheSection, folder: Path) -> None:
    """Take one group from enqueued to trained, and publish a version, over one connection."""
    client = connection.connect(section)
    try:
        await connection.check(client, "kinds", section)
        objects = FileStore(folder)
        store = ExperienceStore(client, "kinds", objects, section)
        budget = cache_pb2.StalenessBudget(groups_per_step=1, max_staleness=0)
        opening = cache_pb2.OpenLineageRequest(request_id="o", run_id="kinds", budget=budget)
        fence = (await store.open_lineage(opening)).fence
        await publish(VersionStore(client, "kinds", objects, section), fence)
        task = common_pb2.Task(env_id="e", task_id="t")
        group = common_pb2.Group(
            group_id="g", task=task, num_samples=2, purpose=common_pb2.PURPOSE_TRAIN
        )
        await store.enqueue(fence, [group])
        leasing = cache_pb2.LeaseRequest(request_id="l", server_id="r", max_samples=2, ttl_ms=9999)
        for lease in await store.lease(leasing):
            version = Version(1, 0).proto()
            committing = cache_pb2.CommitRequest(
                lease=cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token),
                server_id="r",
                summary=cache_pb2.SampleSummary(
                    oldest_version=version, newest_version=version, reward=1.0
                ),
                trajectory=pack(common_pb2.Trajectory(sample_id=lease.sample_id)),
            )
            await store.commit(committing)
        taking = cache_pb2.TakeBatchRequest(fence=fence, step=1)
        assert (await store.take_batch(taking)).assigned
        assert await store.commit_step(fence, 1) == 2
        assert (await store.stats()).counts.trained == 2
    finally:
        await client.aclose()


async def publish(versions: VersionStore, fence: cache_pb2.Fence) -> None:
    version = Version(1, 0)
    shard = ShardEncoder().encode(version, {"w": np.arange(3, dtype="<f4")}, anchor=True)
    assert await versions.missing(list(shard.chunks)) == list(shard.chunks)
    for name, data in shard.chunks.items():
        await versions.put_chunk(cache_pb2.Chunk(digest=name, data=data), False)
    stage = cache_pb2.StageShardRequest(
        fence=fence, version=version.proto(), world_size=1, slices=shard.slices
    )
    await versions.stage(stage)
    header = cache_pb2.ManifestHeader(
        version=version.proto(), world_size=1, target_digest=target_digest(shard.slices)
    )
    await versions.publish(fence, header)
    assert await versions.latest() == version


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts a Redis of its own with more flags; returns its port."""
    started = []

    def start(*flags: str) -> int:
        port = free_port()
        started.append(start_redis(tmp_path / "redis", port, *flags))
        return port

    yield start
    for process in started:
        process.kill()
        process.wait()


@asynccontextmanager
async def tls_in_front(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Ends TLS before a Redis, as its own TLS port would; yields the port."""

    async def pump(read: Callable[[int], Awaitable[bytes]], writer: asyncio.StreamWriter) -> None:
        while data := await read(2**16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            pump(reader.read, outer), pump(inner.read, writer), return_exceptions=True
        )

    serving = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield serving.sockets[0].getsockname()[1]
    serving.close()


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


def server_context(authority: trustme.CA, *, client_certificates: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


async def test_tls_with_an_authority_of_our_own(server, authority, tmp_path: Path) -> None:
    async with tls_in_front(server(), server_context(authority)) as port:
        url = f"rediss://127.0.0.1:{port}/0"
        with pytest.raises(UnavailableError, match=r"(?i)certificate"):
            await whole_life(CacheSection(redis_url=url), tmp_path / "objects")
        section = CacheSection(redis_url=url, redis_ca_file=str(tmp_path / "ca.pem"))
        await whole_life(section, tmp_path / "objects")


async def test_a_client_certificate_where_redis_asks_for_one(
    server, authority, tmp_path: Path
) -> None:
    mine = authority.issue_cert("cache.moera")
    mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    context = server_context(authority, client_certificates=True)
    async with tls_in_front(server(), context) as port:
        with_authority = CacheSection(
            redis_url=f"rediss://127.0.0.1:{port}/0",
            redis_ca_file=str(tmp_path / "ca.pem"),
            redis_timeout_s=2.0,
        )
        with pytest.raises(UnavailableError):
            await whole_life(with_authority, tmp_path / "objects")
        files = {
            "redis_cert_file": str(tmp_path / "cert.pem"),
            "redis_key_file": str(tmp_path / "key.pem"),
        }
        await whole_life(with_authority.model_copy(update=files), tmp_path / "objects")


async def test_a_whole_run_lives_in_one_slot_of_a_redis_cluster(server, tmp_path: Path) -> None:
    port = server("--cluster-enabled", "yes")
    own = redis.Redis(port=port)
    own.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
    for _ in range(200):
        if b"cluster_state:ok" in own.execute_command("CLUSTER", "INFO"):
            break
        await asyncio.sleep(0.05)
    own.close()
    section = CacheSection(redis_url=f"redis://127.0.0.1:{port}/0", redis_cluster=True)
    await whole_life(section, tmp_path / "objects")


async def test_the_shipped_users_can_do_their_work_and_nothing_else(server, tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    users.write_text(ACL.read_text())
    port = server("--aclfile", str(users))
    url = f"redis://moera:CHANGE-ME-CACHE@127.0.0.1:{port}/0"
    await whole_life(CacheSection(redis_url=url), tmp_path / "objects")
    cache = redis.Redis.from_url(url)
    keda = redis.Redis.from_url(f"redis://keda:CHANGE-ME-KEDA@127.0.0.1:{port}/0")
    pending = "moera:{kinds}:pending"
    assert keda.eval("return redis.call('zcard', KEYS[1])", 1, pending) == 0
    refused: list[Callable[[], Any]] = [
        cache.flushall,
        cache.keys,
        lambda: cache.config_get("*"),
        lambda: cache.get("others"),
        lambda: keda.delete(pending),
        lambda: keda.eval("return redis.call('del', KEYS[1])", 1, pending),
    ]
    for call in refused:
        with pytest.raises(
            redis.exceptions.ResponseError, match=r"(?i)permission|NOPERM|can't run"
        ):
            call()
    wrong = CacheSection(redis_url=f"redis://moera:wrong@127.0.0.1:{port}/0")
    with pytest.raises(ConfigError, match="refuses"):
        await whole_life(wrong, tmp_path / "objects")
    cache.close()
    keda.close()


async def test_a_redis_without_an_append_only_file_is_refused_unless_allowed(
    server, tmp_path: Path
) -> None:
    port = server("--appendonly", "no")
    section = CacheSection(redis_url=f"redis://127.0.0.1:{port}/0")
    with pytest.raises(ConfigError, match="appendonly yes"):
        await whole_life(section, tmp_path / "objects")
    await whole_life(section.model_copy(update={"require_aof": False}), tmp_path / "objects")


# -- ElastiCache -----------------------------------------------------------------------------------


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-2",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


def signature_of(token: str) -> str:
    """Compute a token's signature as AWS documents it (Signature Version 4, query parameters)."""
    parts = urlsplit(f"https://{token}")
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    del query["X-Amz-Signature"]
    canonical = "&".join(
        f"{quote(name, safe='~')}={quote(query[name], safe='~')}" for name in sorted(query)
    )
    request = "\n".join(
        ("GET", "/", canonical, f"host:{parts.netloc}", "", "host", hashlib.sha256(b"").hexdigest())
    )
    scope = query["X-Amz-Credential"].partition("/")[2]
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(
        (
            "AWS4-HMAC-SHA256",
            query["X-Amz-Date"],
            scope,
            hashlib.sha256(request.encode()).hexdigest(),
        )
    )
    return hmac.digest(key, text.encode(), "sha256").hex()


@pytest.mark.parametrize("serverless", [False, True])
def test_a_token_is_a_presigned_connect_request(aws: None, serverless: bool) -> None:
    user, token = IamCredentials("moera", "my-cache", serverless=serverless).get_credentials()
    assert user == "moera"
    assert token.startswith("my-cache/?")
    query = {name: values[0] for name, values in parse_qs(token.partition("?")[2]).items()}
    assert (query["Action"], query["User"], query["X-Amz-Expires"]) == ("connect", "moera", "900")
    assert query.get("ResourceType") == ("ServerlessCache" if serverless else None)
    assert query["X-Amz-Credential"].split("/")[2:] == ["us-east-2", "elasticache", "aws4_request"]
    made = datetime.datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    assert abs((now - made).total_seconds()) < 60
    assert query["X-Amz-Signature"] == signature_of(token)


async def test_a_connection_that_is_ended_comes_back_with_a_fresh_token(
    aws: None, server, authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = server()
    own = redis.Redis(port=port)
    valid: list[str] = []

    def issue(provider: IamCredentials) -> tuple[str, str]:
        # Stands in for ElastiCache, which checks the signature: only the newest token is let in.
        token = f"token-{len(valid)}"
        valid.append(token)
        own.acl_setuser(
            "moera",
            enabled=True,
            reset_passwords=True,
            passwords=[f"+{token}"],
            keys=["*"],
            categories=["+@all"],
        )
        return "moera", token

    monkeypatch.setattr(IamCredentials, "get_credentials", issue)
    async with tls_in_front(port, server_context(authority)) as tls_port:
        section = CacheSection(
            redis_url=f"rediss://moera@127.0.0.1:{tls_port}/0",
            redis_ca_file=str(tmp_path / "ca.pem"),
            redis_iam_cache="my-cache",
        )
        client = connection.connect(section)
        await client.set("x", "1")
        for rounds in (1, 2):
            own.execute_command("CLIENT", "KILL", "USER", "moera")
            assert await client.get("x") == b"1"
            assert len(valid) == 1 + rounds
        await client.aclose()
    own.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"redis_url": "redis://moera@h", "redis_iam_cache": "c"}, "use rediss://"),
        ({"redis_url": "redis://h", "redis_ca_file": "ca.pem"}, "use rediss://"),
        ({"redis_cert_file": "c.pem"}, "go together"),
        ({"redis_iam_serverless": True}, "needs redis_iam_cache"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(values, message) -> None:
    with pytest.raises(ValueError, match=message):
        CacheSection(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"redis_url": "rediss://h", "redis_iam_cache": "c"}, "names the IAM user"),
        ({"redis_url": "rediss://u:p@h", "redis_iam_cache": "c"}, "no password"),
        ({"redis_url": "rediss://h", "redis_ca_file": "/nowhere.pem"}, "no certificate or key"),
    ],
)
def test_a_client_is_not_made_from_what_cannot_work(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        connection.connect(CacheSection(**values))


def test_iam_without_a_region_or_credentials_says_so(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigError, match="AWS credentials"):
        IamCredentials("u", "c").get_credentials()
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(ConfigError, match="AWS_DEFAULT_REGION"):
        IamCredentials("u", "c")
