"""The durable tier: named byte objects in a folder (file://) or a bucket (s3://).

- An object appears whole or not at all.
- `put_if_absent` is atomic: of several writers of one key exactly one wins.

Calls block; async callers use `asyncio.to_thread`.
"""

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from moera.errors import ConfigError, InvalidArgumentError, NotFoundError, UnavailableError

_PART_BYTES = 8 * 2**20
_KEY = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


class ObjectStore(Protocol):
    """Byte objects by key; keys are relative paths of letters, digits and . _ = -"""

    def get(self, key: str) -> bytes:
        """Return an object, or raise NotFoundError."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing an older one."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object unless the key exists; returns whether it was written."""
        ...

    def exists(self, key: str) -> bool:
        """Return whether the key exists."""
        ...

    def list(self, folder: str) -> list[str]:
        """Return all keys below a folder, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""

    def uri(self, key: str) -> str:
        """Return where the object lies, for people and logs."""
        ...


def open_store(uri: str) -> ObjectStore:
    """Open file:///folder or s3://bucket/prefix.

    Raises:
        ConfigError: another scheme, or no folder or bucket.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.path.startswith("/"):
        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(parts.netloc, parts.path.strip("/"))
    raise ConfigError(f"storage.uri {uri!r}: use file:///folder or s3://bucket/prefix")


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key) or ".." in key.split("/") or "." in key.split("/"):
        raise InvalidArgumentError(f"object key {key!r} is not usable")
    return key


class FileStore:
    """Objects as files; written beside, synced, then moved into place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, key: str) -> Path:
        return self._folder / _checked(key)

    def get(self, key: str) -> bytes:
        """Return an object."""
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(f"no object {self.uri(key)}") from None

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing an older one."""
        path = self._path(key)
        os.replace(self._written_beside(path, data), path)
        _sync_folder(path.parent)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object unless the key exists; returns whether it was written."""
        path = self._path(key)
        beside = self._written_beside(path, data)
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(beside)
        _sync_folder(path.parent)
        return True

    def _written_beside(self, path: Path, data: bytes) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".~", delete=False) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return file.name

    def exists(self, key: str) -> bool:
        """Return whether the key exists."""
        return self._path(key).is_file()

    def list(self, folder: str) -> list[str]:
        """Return all keys below a folder, sorted."""
        root = self._path(folder)
        return sorted(
            file.relative_to(self._folder).as_posix()
            for file in root.rglob("*")
            if file.is_file() and not file.name.startswith(".~")
        )

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._path(key).unlink()

    def uri(self, key: str) -> str:
        """Return where the object lies."""
        return (self._folder / key).as_uri()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class S3Store:
    """Objects in a bucket, by boto3's default credentials, region and endpoint.

    - `put_if_absent` uses conditional writes (If-None-Match), which S3 has had since 2024.
    - Large objects go up in parts and come down by ranges, several at a time.
    - SlowDown, server errors and broken connections are tried again with jittered backoff; boto3
      adds and checks checksums.
    """

    def __init__(self, bucket: str, prefix: str) -> None:
        import boto3
        from boto3.s3.transfer import TransferConfig
        from botocore.config import Config

        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        retries: Any = {"mode": "standard", "total_max_attempts": 10}
        self._client: Any = boto3.client(
            "s3", config=Config(retries=retries, connect_timeout=5, read_timeout=30)
        )
        self._transfer = TransferConfig(
            multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=8
        )

    def _name(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + _checked(key)}

    def _failed(self, error: Exception, key: str) -> Exception:
        code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
        if code in ("NoSuchKey", "404", "NotFound"):
            return NotFoundError(f"no object {self.uri(key)}")
        if code in ("NoSuchBucket", "AccessDenied", "403"):
            return ConfigError(f"storage.uri: {self.uri(key)}: {error}")
        return UnavailableError(f"{self.uri(key)}: {error}")

    def get(self, key: str) -> bytes:
        """Return an object."""
        try:
            answer = self._client.get_object(**self._name(key))
            if answer["ContentLength"] <= _PART_BYTES:
                return answer["Body"].read()
            answer["Body"].close()
            whole = io.BytesIO()
            self._client.download_fileobj(Fileobj=whole, Config=self._transfer, **self._name(key))
            return whole.getvalue()
        except Exception as error:
            raise self._failed(error, key) from error

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing an older one."""
        try:
            if len(data) > _PART_BYTES:
                self._client.upload_fileobj(
                    Fileobj=io.BytesIO(data), Config=self._transfer, **self._name(key)
                )
            else:
                self._client.put_object(Body=data, **self._name(key))
        except Exception as error:
            raise self._failed(error, key) from error

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object unless the key exists; returns whether it was written."""
        try:
            self._client.put_object(Body=data, IfNoneMatch="*", **self._name(key))
        except Exception as error:
            code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
            if code in ("PreconditionFailed", "412"):
                return False
            raise self._failed(error, key) from error
        return True

    def exists(self, key: str) -> bool:
        """Return whether the key exists."""
        try:
            self._client.head_object(**self._name(key))
        except Exception as error:
            failed = self._failed(error, key)
            if isinstance(failed, NotFoundError):
                return False
            raise failed from error
        return True

    def list(self, folder: str) -> list[str]:
        """Return all keys below a folder, sorted."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}{_checked(folder)}/"
        )
        try:
            return sorted(
                item["Key"].removeprefix(self._prefix)
                for page in pages
                for item in page.get("Contents", ())
            )
        except Exception as error:
            raise self._failed(error, folder) from error

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine."""
        try:
            self._client.delete_object(**self._name(key))
        except Exception as error:
            raise self._failed(error, key) from error

    def uri(self, key: str) -> str:
        """Return where the object lies."""
        return f"s3://{self._bucket}/{self._prefix}{key}"
