"""Where things may be: what the import contracts cannot say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    file
    for folder in ("moera", "services")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "moera/v1" not in file.as_posix()
]
TORCH_MAY_BE_IN = ("moera/models", "services/learner", "services/rollout")
FORBIDDEN_NAMES = {"utils", "common", "helpers", "base", "manager"}


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def imported(file: Path) -> set[str]:
    """Return the first part of every module that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_torch_is_imported_only_where_models_live() -> None:
    wrong = [
        name(file)
        for file in SOURCES
        if imported(file) & {"torch", "transformers", "safetensors"}
        and not name(file).startswith(TORCH_MAY_BE_IN)
    ]
    assert wrong == []


def test_domain_files_of_services_import_no_grpc() -> None:
    edges = {"__main__.py", "servicer.py"}
    wrong = [
        name(file)
        for file in SOURCES
        if name(file).startswith("services/")
        and file.name not in edges
        and "grpc" in imported(file)
    ]
    assert wrong == []


def test_nothing_unpickles() -> None:
    assert [name(file) for file in SOURCES if imported(file) & {"pickle", "dill", "joblib"}] == []
    loads = re.compile(r"torch\.load\(")
    assert [name(file) for file in SOURCES if loads.search(file.read_text())] == []


def test_files_are_short_and_named_after_what_they_hold() -> None:
    long = {
        name(file): lines for file in SOURCES if (lines := len(file.read_text().splitlines())) > 400
    }
    assert long == {}
    assert [name(file) for file in SOURCES if file.stem in FORBIDDEN_NAMES] == []
    mains = [file for file in SOURCES if file.name == "__main__.py"]
    assert len(mains) == 4
    assert all(len(file.read_text().splitlines()) <= 60 for file in mains)


@pytest.mark.parametrize("command", [(), ("train",), ("env", "serve")])
def test_help_needs_no_torch(command: tuple[str, ...]) -> None:
    code = (
        "import sys; from moera.cli import main\n"
        f"try:\n    main([*{command!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
