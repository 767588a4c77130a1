"""How every service process starts and ends: configuration, telemetry, serve, one line on error."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from moera import config, telemetry
from moera.config import ServiceConfig
from moera.errors import MoeraError

RunT = TypeVar("RunT", bound=ServiceConfig)


def main(name: str, model: type[RunT], serve: Callable[[RunT], Coroutine[Any, Any, None]]) -> int:
    """Read the command line, run `serve` to its end, and say in one line what went wrong.

    Args:
        name: of the service, such as "cache"; its process shows as `services.<name>`.

    Returns:
        The exit code: 2 for wrong input or configuration, 1 for another MoeraError, else 0.
    """
    try:
        run = config.load(model, sys.argv[1:], f"services.{name}")
        telemetry.setup(name, run.run, run.telemetry)
        asyncio.run(serve(run))
    except MoeraError as error:
        return _explained(name, error)
    except BaseExceptionGroup as group:  # what ends a TaskGroup
        wanted, others = group.split(MoeraError)
        if wanted is None or others is not None:
            raise
        return _explained(name, next(_leaves(wanted)))
    return 0


def _explained(name: str, error: BaseException) -> int:
    print(f"services.{name}: {error}", file=sys.stderr)
    return 2 if isinstance(error, ValueError) else 1


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
