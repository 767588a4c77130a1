"""The Lua transitions: loaded once, run with the run's key prefix, refusals made typed errors.

Every transition is one script: it reads, decides and writes without anybody in between. All are
safe to repeat, so the Redis client may retry them after a broken connection.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis.asyncio as aioredis
from redis import exceptions

from moera import errors
from services.cache.config import CacheSection
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

    def __init__(self, redis: aioredis.Redis, run_id: str, section: CacheSection) -> None:
        self._prefix = prefix(run_id)
        limits = f"{section.max_attempts}, {section.poison_servers}"
        prelude = f"local MAX_ATTEMPTS, POISON_SERVERS = {limits}\n"
        prelude += (_FOLDER / "prelude.lua").read_text()
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


@contextlib.contextmanager
def redis_errors() -> Iterator[None]:
    """Turn what the Redis client raises inside the block into moera's errors."""
    try:
        yield
    except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
        raise errors.UnavailableError(f"Redis does not answer: {error}") from error
    except exceptions.OutOfMemoryError as error:
        raise errors.ResourceExhaustedError("Redis is out of memory", 5.0) from error
    except exceptions.ResponseError as error:
        code, _, message = str(error).partition(" ")
        refusal = _REFUSALS.get(code.removeprefix("MOERA_"))
        if refusal is None:
            raise
        raise refusal(message) from None
