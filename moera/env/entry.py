"""Environments by entry point: package.module:Class."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from moera.env.environment import Environment
from moera.errors import ConfigError, MoeraError


def load(entry: str, params: dict[str, Any]) -> Callable[[], Environment]:
    """Return a factory of environments, tried once.

    Raises:
        ConfigError: no such module or class, or its constructor refuses the parameters.
    """
    module_name, _, class_name = entry.partition(":")
    # Last, so that a folder of the user's cannot shadow an installed package.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"environment entry {entry!r} (package.module:Class): {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, Environment)):
        raise ConfigError(f"environment entry {entry!r} is no subclass of moera.env.Environment")
    factory = functools.partial(kind, **params)
    try:
        factory()
    except MoeraError:
        raise
    except Exception as error:
        raise ConfigError(
            f"environment {entry!r} cannot be made with {params}: {type(error).__name__}: {error}"
        ) from error
    return factory
