"""Configuration: precedence, refusals that name the fix, and files that go round."""

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from moera import config
from moera.config import Section, ServiceConfig
from moera.errors import ConfigError


class CourierSection(Section):
    """A section as services have them."""

    deadline_ms: int = 1000
    """Deadline in milliseconds."""
    drain: bool = False
    """Drain first."""


class CourierConfig(ServiceConfig):
    """A service's configuration."""

    courier: CourierSection = CourierSection()
    """[courier]"""


class NeedyConfig(CourierConfig):
    """A service that cannot start without a model."""

    model: config.ModelSection
    """[model]"""


def toml(folder: Path, text: str, name: str = "run.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def load(*argv: str | Path) -> CourierConfig:
    return config.load(CourierConfig, [str(part) for part in argv], "moera-courier")


def test_defaults_need_no_file() -> None:
    assert load().courier == CourierSection(deadline_ms=1000)
    assert load().addresses.cache == "127.0.0.1:7101"


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    first = toml(tmp_path, "[courier]\ndeadline_ms = 1\ndrain = true\n", "first.toml")
    second = toml(tmp_path, "[courier]\ndeadline_ms = 2\n", "second.toml")
    loaded = load("--config", first, "--config", second)
    assert loaded.courier == CourierSection(deadline_ms=2, drain=True)


def test_environment_wins_over_files_and_flags_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toml(tmp_path, "[courier]\ndeadline_ms = 1\n")
    assert load("--config", file).courier.deadline_ms == 1
    monkeypatch.setenv("MOERA_COURIER__DEADLINE_MS", "2")
    assert load("--config", file).courier.deadline_ms == 2
    assert load("--config", file, "--courier.deadline_ms", "3").courier.deadline_ms == 3
    assert load("--courier.deadline_ms=4", f"--config={file}").courier.deadline_ms == 4


def test_a_switch_needs_no_value() -> None:
    assert load("--courier.drain").courier.drain
    assert not load("--no-courier.drain").courier.drain


def test_sections_of_other_services_are_ignored(tmp_path: Path) -> None:
    file = toml(tmp_path, "[learner]\nlr = 1\n[courier]\ndeadline_ms = 5\n")
    assert load("--config", file).courier.deadline_ms == 5


def test_an_unknown_key_in_a_file_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    file = toml(tmp_path, "[courier]\ndeadline_m = 5\n")
    with pytest.raises(
        ConfigError, match=r"unknown key courier\.deadline_m; did you mean 'deadline_ms'\?"
    ):
        load("--config", file)


def test_an_unknown_key_without_a_near_one_lists_the_known_ones(tmp_path: Path) -> None:
    file = toml(tmp_path, "[courier]\nzzz = 5\n")
    with pytest.raises(ConfigError, match=r"courier\.zzz; known keys: deadline_ms, drain"):
        load("--config", file)


def test_an_unknown_variable_of_a_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOERA_COURIER__DEADLINE", "5")
    with pytest.raises(ConfigError, match="did you mean 'deadline_ms'"):
        load()


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--courier\.deadlines"):
        load("--courier.deadlines", "5")


def test_a_wrong_value_names_key_and_value(tmp_path: Path) -> None:
    file = toml(tmp_path, "[courier]\ndeadline_ms = 'soon'\n")
    with pytest.raises(ConfigError, match=r"courier\.deadline_ms: .*integer.*'soon'"):
        load("--config", file)


def test_a_missing_section_is_named_without_dumping_the_rest(tmp_path: Path) -> None:
    file = toml(tmp_path, "[run]\nid = 'secret-run'\n")
    with pytest.raises(ConfigError, match="model: Field required") as caught:
        config.load(NeedyConfig, ["--config", str(file)])
    assert "secret-run" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml does not exist"):
        load("--config", tmp_path / "absent.toml")


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load("--config", tmp_path)


@pytest.mark.parametrize("data", [b"[run\n", b"[run]\nid = '\xff'\n", b"a = 1\na = 2\n"])
def test_a_malformed_file_is_named(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"run\.toml is not valid TOML"):
        load("--config", file)


def test_sections_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load().courier.deadline_ms = 7  # type: ignore[misc]


def test_help_exits_cleanly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        load("--help")
    assert exited.value.code == 0
    assert "--courier.deadline_ms" in capsys.readouterr().out


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    file = toml(tmp_path, "[run]\nid = 'r-1'\ndir = 'läufe'\n[courier]\ndeadline_ms = 5\n")
    loaded = load("--config", file)
    written = tmp_path / "deep" / "config.toml"
    config.write(loaded, written)
    assert load("--config", written).model_dump() == loaded.model_dump()
    assert tomllib.loads(written.read_text(encoding="utf-8"))["run"]["dir"] == "läufe"
    assert [path.name for path in written.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("good", ["a", "run-1", "0", "a" * 63])
def test_plain_run_ids_are_taken(good: str) -> None:
    assert config.check_run_id(good) == good
    assert load("--run.id", good).run.id == good


@pytest.mark.parametrize("bad", ["A", "-a", "a/b", "../a", "a" * 64, "a\n", "a}b", "ä"])
def test_run_ids_that_could_leave_their_folder_or_keys_are_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        config.check_run_id(bad)
    with pytest.raises(ConfigError, match=r"run\.id"):
        load("--run.id", bad)


def test_an_empty_id_asks_check_run_id_for_one() -> None:
    with pytest.raises(ConfigError):
        config.check_run_id("")


def test_storage_defaults_to_the_run_folder(tmp_path: Path) -> None:
    loaded = load("--run.id", "r", "--run.dir", str(tmp_path))
    assert loaded.storage_uri() == f"file://{tmp_path}/r/objects"
    assert load("--storage.uri", "s3://bucket/p").storage_uri() == "s3://bucket/p"


def test_resolved_replaces_single_keys_and_leaves_the_original() -> None:
    before = load("--courier.drain")
    after = config.resolved(before, run={"id": "r-2"}, courier={"deadline_ms": 9})
    assert after.courier == CourierSection(deadline_ms=9, drain=True)
    assert (before.run.id, after.run.id) == ("", "r-2")
    assert before.courier.deadline_ms == 1000


@pytest.mark.parametrize(
    "sections", [{"run": {"id": "../x"}}, {"run": {"idd": "x"}}, {"courier": {"deadline_ms": "x"}}]
)
def test_resolved_checks_what_it_is_given(sections: dict) -> None:
    with pytest.raises(ConfigError):
        config.resolved(load(), **sections)


RUN = """
[model]
path = "policy"
[[environment]]
id = "sums"
entry = "a:B"
"""


@pytest.fixture
def whole_run(monkeypatch: pytest.MonkeyPatch) -> type[ServiceConfig]:
    class Point:
        name = "courier"

        def load(self) -> type[Section]:
            return CourierSection

    monkeypatch.setattr(config, "entry_points", lambda group: [Point()])
    return config.run_config_model()  # type: ignore[return-value]


def test_a_run_file_knows_every_registered_section(
    tmp_path: Path, whole_run: type[ServiceConfig]
) -> None:
    file = toml(tmp_path, RUN + "[courier]\ndeadline_ms = 3\n")
    loaded = config.load_files(whole_run, [file])
    assert loaded.courier.deadline_ms == 3  # type: ignore[attr-defined]
    assert loaded.environment[0].weight == 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUN + "[curier]\ndeadline_ms = 3\n", r"unknown key curier; did you mean 'courier'"),
        (RUN + "entyr = 'x'\n", r"unknown key environment\.0\.entyr; did you mean 'entry'"),
        (RUN.replace("sums", "a b"), r"environment\.0\.id"),
        (RUN + "weight = 0\n", r"environment\.0\.weight: .*greater than 0"),
        ("", "model: Field required; environment: Field required"),
    ],
)
def test_a_run_file_with_a_mistake_is_refused_by_name(
    tmp_path: Path, whole_run: type[ServiceConfig], text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config.load_files(whole_run, [toml(tmp_path, text)])
