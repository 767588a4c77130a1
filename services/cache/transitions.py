"""The Lua transitions: loaded once, run with the run's key prefix, refusals made typed errors.

Every transition is one script: it reads, decides and writes without anybody in between. All are
safe to repeat, so the Redis client may retry them after a broken connection.
"""

from pathlib import Path
from typing import Any

import redis.asyncio as aioredis
from redis import exceptions

from moera import errors
from services.cache.keys import prefix

_FOLDER = Path(__file__).parent / "lua"
_REFUSALS: dict[str, type[errors.MoeraError]] = {
    "ABORTED": errors.AbortedError,
    "FAILED_PRECONDITION": errors.FailedPreconditionError,
    "NOT_FOUND": errors.NotFoundError,
    "ALREADY_EXISTS": errors.AlreadyExistsError,
}


class Transitions:
    """Runs a script of the `lua` folder by name."""

    def __init__(self, redis: aioredis.Redis, run_id: str) -> None:
        self._prefix = prefix(run_id)
        prelude = (_FOLDER / "prelude.lua").read_text()
        self._scripts = {
            file.stem: redis.register_script(prelude + file.read_text())
            for file in _FOLDER.glob("*.lua")
            if file.stem != "prelude"
        }

    async def run(self, name: str, *arguments: str | bytes | int) -> Any:
        """Run a transition.

        Raises:
            AbortedError, FailedPreconditionError, NotFoundError, AlreadyExistsError: refused.
            UnavailableError: Redis does not answer.
        """
        with redis_errors():
            return await self._scripts[name](keys=[self._prefix], args=list(arguments))


class redis_errors:  # noqa: N801 (reads as a statement: `with redis_errors():`)
    """Turns what the Redis client raises into moera's errors."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
            raise errors.UnavailableError(f"Redis does not answer: {error}") from error
        if isinstance(error, exceptions.OutOfMemoryError):
            raise errors.ResourceExhaustedError("Redis is out of memory", 5.0) from error
        if isinstance(error, exceptions.BusyLoadingError):
            raise errors.UnavailableError("Redis is loading its data") from error
        if isinstance(error, exceptions.ResponseError):
            code, _, message = str(error).partition(" ")
            refusal = _REFUSALS.get(code.removeprefix("MOERA_"))
            if refusal:
                raise refusal(message) from None
