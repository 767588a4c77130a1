import pytest

from moera.env.entry import load
from moera.errors import ConfigError
from services.envs.calculator import Calculator, evaluate


def test_an_entry_makes_environments_with_its_parameters() -> None:
    assert isinstance(load("services.envs.calculator:Calculator", {"digits": 1})(), Calculator)


@pytest.mark.parametrize(
    ("entry", "params", "message"),
    [
        ("nowhere.to:Be", {}, "No module named 'nowhere'"),
        ("services.envs.calculator:Calcullator", {}, "Calcullator"),
        ("services.envs.calculator", {}, "package.module:Class"),
        ("json:JSONDecoder", {}, "no subclass of moera.env.Environment"),
        ("services.envs.calculator:Calculator", {"digit": 1}, "unexpected keyword"),
        ("services.envs.reasoning_gym:ReasoningGym", {"family": "chain_sums"}, "chain_sum"),
        (
            "services.envs.reasoning_gym:ReasoningGym",
            {"family": "chain_sum", "min_term": 2},
            "min_term",
        ),
    ],
)
def test_a_wrong_entry_names_the_cause(entry: str, params: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(entry, params)


@pytest.mark.parametrize("text", ["1 / 0", "2 ** 99", "a", "1 +", "True", "1.5", "1" * 300])
def test_only_integer_arithmetic_is_evaluated(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(text)


def test_arithmetic_is_right() -> None:
    assert evaluate("-(2 + 3) * 4") == -20
