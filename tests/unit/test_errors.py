"""The error tree: what callers may catch."""

import pytest

from moera import errors

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.MoeraError)
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_carries_its_message(kind: type[errors.MoeraError]) -> None:
    assert str(kind("say what to do")) == "say what to do"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_the_tree_in_the_docstring_is_the_tree_in_the_code(kind: type[errors.MoeraError]) -> None:
    lines = (errors.__doc__ or "").splitlines()
    depth = next(line.index(kind.__name__) for line in lines if kind.__name__ in line)
    ancestors = [base for base in kind.__mro__ if issubclass(base, errors.MoeraError)]
    assert depth == 4 * len(ancestors)


def test_errors_are_also_the_builtin_that_generic_code_catches() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.NotFoundError, LookupError)
    assert issubclass(errors.UnavailableError, ConnectionError)
    assert issubclass(errors.DeadlineError, TimeoutError)


def test_back_pressure_says_when_to_come_back() -> None:
    assert errors.ResourceExhaustedError("full").retry_after_s == 1.0
    assert errors.ResourceExhaustedError("full", 0.25).retry_after_s == 0.25
