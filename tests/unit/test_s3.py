"""The bucket store against a server that answers as S3 does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from moto.server import ThreadedMotoServer

from moera.errors import ConfigError, NotFoundError, UnavailableError
from moera.objects import S3Store, open_store

BUCKET = "moera-tests"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    made = open_store(f"s3://{BUCKET}/runs/r1")
    assert isinstance(made, S3Store)
    return made


def test_objects_are_written_listed_and_removed(store: S3Store) -> None:
    store.put("a/b", b"1")
    store.put("a/b", b"2")
    store.put("ab/c", b"3")
    assert (store.get("a/b"), store.list("a"), store.exists("a/b")) == (b"2", ["a/b"], True)
    assert store.uri("a/b") == f"s3://{BUCKET}/runs/r1/a/b"
    store.delete("a/b")
    store.delete("a/b")
    assert (store.list("a"), store.exists("a/b")) == ([], False)
    with pytest.raises(NotFoundError, match="a/b"):
        store.get("a/b")


def test_two_runs_in_a_bucket_do_not_see_each_other(store: S3Store) -> None:
    other = open_store(f"s3://{BUCKET}/runs/r10")
    store.put("x/1", b"mine")
    other.put("x/2", b"theirs")
    assert (store.list("x"), other.list("x")) == (["x/1"], ["x/2"])


def test_of_many_writers_exactly_one_wins(store: S3Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.put_if_absent("key", b"%d" % i), range(16)))
    assert sum(won) == 1
    assert store.get("key") == b"%d" % won.index(True)


def test_a_large_object_goes_up_in_parts_and_comes_down_whole(store: S3Store) -> None:
    data = bytes(range(256)) * (21 * 2**12)  # 21 MiB: three parts of at most 8
    store.put("large", data)
    head = store._client.head_object(Bucket=BUCKET, Key="runs/r1/large")
    assert head["ETag"].endswith('-3"')
    assert store.get("large") == data


class Response(AWSResponse):
    """An answer that never went over the wire."""

    def __init__(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>x</Message></Error>"
        super().__init__("http://x", status, {"Content-Type": "application/xml"}, None)
        self._content = body.encode()


def answer_with(store: S3Store, operation: str, answers: list[Response]) -> list[str]:
    """Make the next calls of an operation get these answers; returns what was asked."""
    asked: list[str] = []

    def before_send(request, **_: object) -> Response | None:
        asked.append(request.url)
        return answers.pop(0) if answers else None

    store._client.meta.events.register(f"before-send.s3.{operation}", before_send)
    return asked


def test_slow_down_and_server_errors_are_tried_again(store: S3Store) -> None:
    asked = answer_with(
        store, "PutObject", [Response(503, "SlowDown"), Response(500, "InternalError")]
    )
    store.put("busy", b"1")
    assert (len(asked), store.get("busy")) == (3, b"1")


def test_refusals_say_what_is_wrong(store: S3Store) -> None:
    answer_with(store, "GetObject", [Response(403, "AccessDenied")])
    with pytest.raises(ConfigError, match="AccessDenied"):
        store.get("busy")
    answer_with(store, "PutObject", [Response(400, "SomethingElse")])
    with pytest.raises(UnavailableError, match="SomethingElse"):
        store.put("busy", b"1")
    with pytest.raises(ConfigError, match="NoSuchBucket"):
        open_store("s3://no-such-bucket-here/x").put("a", b"")
