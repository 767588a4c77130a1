"""Configuration: pydantic models read from TOML files, then environment, then flags.

One TOML file describes a run. Sections that several services read are defined here; each
service's own section is in `services/<name>/config.py` and is registered in pyproject.toml
under the entry-point group "moera.sections", so that `moera train` can check a whole file
before it starts anything.

Precedence, lowest first: files in order, MOERA_<SECTION>__<KEY> variables, --section.key flags.
Unknown keys are errors.
"""

import argparse
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from moera.errors import ConfigError

RUN_ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
_OPTIONAL_RUN_ID_PATTERN = r"^([a-z0-9][a-z0-9-]{0,62})?$"

ConfigT = TypeVar("ConfigT", bound=BaseSettings)


class Section(BaseModel):
    """A section of the configuration: immutable, unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RunSection(Section):
    """Who this run is."""

    id: Annotated[str, Field(pattern=_OPTIONAL_RUN_ID_PATTERN)] = ""
    """Id of the run: its Redis keys, object prefix and folder. Empty: name and start time."""
    name: Annotated[str, Field(pattern=RUN_ID_PATTERN)] = "run"
    """Short name, used to make an id."""
    dir: Path = Path("runs")
    """Folder that holds one folder for each run."""
    seed: int = 0
    """Seeds task order, sampling noise and initialisation."""

    @property
    def path(self) -> Path:
        """The run's own folder."""
        return self.dir / self.id


class ModelSection(Section):
    """The policy."""

    path: str
    """Folder with a Hugging Face checkpoint, tokenizer and chat template."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type that rollout servers compute in and weights are published in."""


class EnvironmentSection(Section):
    """One environment of the run ([[environment]])."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    """Name of the environment, unique in the run."""
    entry: str = ""
    """package.module:Class that the built-in envs service serves; empty with `address`."""
    address: str = ""
    """host:port of a server of your own; empty: the built-in envs service serves `entry`."""
    params: dict[str, Any] = {}
    """Keyword arguments of the environment's constructor."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Share of training tasks drawn from it, relative to the others."""
    train_split: str = "train"
    """Split that training tasks come from."""
    eval_split: str = "eval"
    """Split that evaluation tasks come from."""


class AddressesSection(Section):
    """Where services are found (host:port)."""

    cache: str = "127.0.0.1:7101"
    """Experience and checkpoint cache."""
    envs: str = "127.0.0.1:7102"
    """Built-in environment service."""
    learner: str = "127.0.0.1:7103"
    """Learner, for operators only."""
    rollouts: list[str] = []
    """Rollout servers that `moera status` asks; nobody calls them on the training path."""


class StorageSection(Section):
    """The durable tier."""

    uri: str = ""
    """file:///folder or s3://bucket/prefix; empty: the folder `objects` of the run."""


class TelemetrySection(Section):
    """Traces, metrics and logs."""

    otlp_endpoint: str = ""
    """http://host:4317 of an OTLP collector; empty: files in the run's `telemetry` folder."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of groups whose samples are traced; a hash of the group id decides."""
    metrics_interval_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds between two exports of metrics."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe level that is logged."""


class LocalSection(Section):
    """How `moera train` runs the services as processes of this machine."""

    num_rollouts: Annotated[int, Field(ge=1, le=64)] = 1
    """Rollout server processes."""
    max_restarts: Annotated[int, Field(ge=0)] = 10
    """Restarts of any one process before the run is given up."""
    stop_seconds: Annotated[float, Field(gt=0, le=60)] = 8.0
    """Time that all processes together get to stop before they are killed."""


class ServiceConfig(BaseSettings):
    """What every service reads; each adds its own section. Sections of others are ignored."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_prefix="MOERA_",
        env_nested_delimiter="__",
        use_attribute_docstrings=True,
    )

    run: RunSection = RunSection()
    """[run]"""
    addresses: AddressesSection = AddressesSection()
    """[addresses]"""
    storage: StorageSection = StorageSection()
    """[storage]"""
    telemetry: TelemetrySection = TelemetrySection()
    """[telemetry]"""

    def storage_uri(self) -> str:
        """Return the object store's URI, with the run's folder as default."""
        return self.storage.uri or f"file://{(self.run.path / 'objects').absolute()}"


def load(model: type[ConfigT], argv: Sequence[str], prog: str = "") -> ConfigT:
    """Read a service's configuration from `--config FILE ... --section.key value ...`.

    Raises:
        ConfigError: a file is missing or malformed, or a value is wrong.
    """
    parser = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", action="append", default=[], type=Path)
    known, rest = parser.parse_known_args(argv)
    return load_files(model, known.config, rest, prog)


def load_files(
    model: type[ConfigT], files: Sequence[Path], flags: Sequence[str] = (), prog: str = ""
) -> ConfigT:
    """Read `model` from TOML files, MOERA_ variables and flags, later ones winning."""
    for file in files:
        _check_toml(file)

    class Loaded(model):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            cli = CliSettingsSource(
                settings_cls,
                cli_prog_name=prog or None,
                cli_parse_args=list(flags),
                cli_implicit_flags=True,
                cli_exit_on_error=False,
            )
            toml = TomlConfigSettingsSource(settings_cls, toml_file=list(files), deep_merge=True)
            return cli, env_settings, toml

    Loaded.__name__ = model.__name__
    try:
        return Loaded()  # type: ignore[return-value]
    except ValidationError as error:
        raise ConfigError(_explain(error, model)) from None
    except Exception as error:
        if type(error).__name__ == "SettingsError":
            raise ConfigError(_explain_flags(str(error), model)) from None
        raise


def run_config_model() -> type[ServiceConfig]:
    """Return the model of a whole run file: shared sections and every service's section."""
    sections: dict[str, Any] = {
        "model": (ModelSection, ...),
        "environment": (list[EnvironmentSection], ...),
        "local": (LocalSection, LocalSection()),
    }
    for point in entry_points(group="moera.sections"):
        section = point.load()
        sections[point.name] = (section, Field(default_factory=section))

    class WholeRun(ServiceConfig):
        model_config = SettingsConfigDict(extra="forbid")

    return create_model("RunConfig", __base__=WholeRun, **sections)


def write(config: BaseModel, file: Path) -> None:
    """Write a configuration as TOML, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    text = tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def check_run_id(run_id: str) -> str:
    """Return the id, or raise ConfigError if it could escape its folder or key prefix."""
    if not re.fullmatch(RUN_ID_PATTERN, run_id):
        raise ConfigError(
            f"run id {run_id!r} is not usable: use lower-case letters, digits and '-', at most 63"
        )
    return run_id


def _check_toml(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            tomllib.load(stream)
    except FileNotFoundError:
        raise ConfigError(f"configuration file {file} does not exist") from None
    except OSError as error:
        raise ConfigError(f"configuration file {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(f"unknown key {where}{_did_you_mean(problem['loc'], model)}")
        elif problem["type"] == "missing":  # its input is everything around it: not for a message
            lines.append(f"{where}: {problem['msg']}")
        else:
            lines.append(f"{where}: {problem['msg']} (got {problem['input']!r})")
    return "; ".join(lines)


def _explain_flags(problem: str, model: type[BaseModel]) -> str:
    unknown = re.search(r"unrecognized arguments: --([\w.-]+)", problem)
    if unknown is None:
        return problem
    loc = tuple(unknown[1].split("."))
    return f"unknown flag --{unknown[1]}{_did_you_mean(loc, model)}"


def _did_you_mean(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    known: type[BaseModel] | None = model
    for part in loc[:-1]:
        if isinstance(part, int) or known is None:
            continue
        field = known.model_fields.get(part)
        known = _section_of(field.annotation) if field else None
    if known is None:
        return ""
    close = difflib.get_close_matches(str(loc[-1]), known.model_fields, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known keys: {', '.join(sorted(known.model_fields))}"


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(annotation, types.GenericAlias | types.UnionType) or typing.get_args(annotation):
        for inner in typing.get_args(annotation):
            found = _section_of(inner)
            if found:
                return found
    return None


def resolved(config: ConfigT, **sections: dict[str, Any]) -> ConfigT:
    """Return a copy of a run configuration with keys of some sections replaced.

    Example: resolved(config, run={"id": "quickstart-1"}).

    Raises:
        ConfigError: a key is unknown or a value is wrong.
    """
    updates = {
        name: _replaced(name, getattr(config, name), values) for name, values in sections.items()
    }
    return config.model_copy(update=updates)


def _replaced(name: str, section: BaseModel, values: dict[str, Any]) -> BaseModel:
    try:
        return type(section).model_validate({**dict(section), **values})
    except ValidationError as error:
        raise ConfigError(f"[{name}] {_explain(error, type(section))}") from None
