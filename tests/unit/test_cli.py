import subprocess
import sys
from pathlib import Path

import pytest

from moera.cli import main

GOOD = """
[model]
path = "{model}"

[[environment]]
id = "sums"
entry = "services.envs.reasoning_gym:ReasoningGym"
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def run(tmp_path: Path, text: str, *flags: str) -> int:
    file = tmp_path / "run.toml"
    file.write_text(text)
    return main(["train", str(file), "--dry-run", "--run.dir", str(tmp_path / "runs"), *flags])


def test_help_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from moera.cli import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'grpc', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_good_file_resolves_and_shows_an_id(tmp_path, model, capsys) -> None:
    assert run(tmp_path, GOOD.format(model=model)) == 0
    assert '"id": "run-' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[model]", "[modle]"), "did you mean 'model'"),
        (("path =", "pth ="), "model.pth; did you mean 'path'"),
        (("{model}", "/nowhere"), "folder '/nowhere' does not exist"),
        (('id = "sums"', 'id = "a b"'), "environment.0.id"),
        (("entry =", 'address = "h:1"\nentry ='), "set either entry or address"),
        (("[model]", "[run]\nid = '../x'\n[model]"), "run.id: String should match pattern"),
        (("[model]", "[model"), "is not valid TOML"),
    ],
)
def test_a_wrong_file_names_the_key_and_the_fix(tmp_path, model, capsys, change, message) -> None:
    text = GOOD.replace(*change).format(model=model)
    assert run(tmp_path, text) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_flag_names_itself(tmp_path, model, capsys) -> None:
    assert run(tmp_path, GOOD.format(model=model), "--run.sed", "1") == 2
    assert "--run.sed" in capsys.readouterr().err


def test_an_unknown_run_lists_the_known_ones(tmp_path, capsys) -> None:
    (tmp_path / "runs" / "old").mkdir(parents=True)
    (tmp_path / "runs" / "old" / "config.toml").write_text("")
    assert main(["train", "--resume", "new", "--runs", str(tmp_path / "runs")]) == 2
    assert "known runs: old" in capsys.readouterr().err
