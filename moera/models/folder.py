"""Checkpoint folders, looked at without torch so that a command line can check them at once."""

from pathlib import Path

from moera.errors import ConfigError


def check_folder(path: str) -> Path:
    """Return the checkpoint folder, or raise ConfigError saying which file is missing."""
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigError(f"model.path: folder {path!r} does not exist")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model.path: {path!r} has no config.json; is it a checkpoint folder?")
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"model.path: {path!r} has no *.safetensors weights")
    return folder
