from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moera.errors import ConfigError, InvalidArgumentError, NotFoundError
from moera.objects import open_store


def test_objects_are_written_listed_and_removed(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/run 1")
    store.put("a/b", b"1")
    store.put("a/b", b"2")
    assert (store.get("a/b"), store.list("a"), store.exists("a/b")) == (b"2", ["a/b"], True)
    store.delete("a/b")
    store.delete("a/b")
    assert (store.list("a"), store.exists("a/b")) == ([], False)
    with pytest.raises(NotFoundError, match="a/b"):
        store.get("a/b")


def test_of_many_writers_exactly_one_wins(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.put_if_absent("key", b"%d" % i), range(32)))
    assert sum(won) == 1
    assert store.get("key") == b"%d" % won.index(True)
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../up", "a/../b", "a//b", "a b"])
def test_keys_cannot_leave_the_store(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not usable"):
        open_store(f"file://{tmp_path}").put(key, b"")


@pytest.mark.parametrize("uri", ["", "/folder", "ftp://x/y", "s3://", "file://relative"])
def test_other_uris_are_refused_with_the_forms_that_work(uri: str) -> None:
    with pytest.raises(ConfigError, match="use file:///folder or s3://bucket/prefix"):
        open_store(uri)
