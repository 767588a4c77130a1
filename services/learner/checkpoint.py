"""The learner's resume state in the object store.

    checkpoints/<step>/model/*            an ordinary Hugging Face folder, usable as it is
    checkpoints/<step>/optimizer.safetensors
    checkpoints/<step>/state.json         digests of the others; written last, it makes all count

A folder without state.json never counts: a learner that dies while it writes leaves nothing that
could be restored by mistake.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors.torch import load, save

from moera.errors import DataLossError
from moera.objects import ObjectStore
from services.learner.policy import Policy

_FOLDER = "checkpoints"
_NOT_COPIED = (".safetensors", ".index.json", ".bin")


@dataclass(frozen=True)
class State:
    """What a restored learner must know beside weights and optimizer."""

    step: int
    epoch: int
    """Lineage that made the checkpoint."""
    restores: dict[int, int]
    """Every lineage so far and the step that it started from."""


def _folder(step: int) -> str:
    return f"{_FOLDER}/{step:08d}"


def steps(objects: ObjectStore) -> list[int]:
    """Return the steps of all whole checkpoints, rising."""
    keys = objects.list(_FOLDER)
    return sorted(int(key.split("/")[1]) for key in keys if key.endswith("/state.json"))


def capture(policy: Policy, source: Path, scratch: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint. Runs on the torch thread.

    Args:
        source: folder of the base checkpoint; tokenizer and template come from there.
        scratch: folder that does not exist; it is removed again.
    """
    policy.model.save_pretrained(scratch)
    for file in source.iterdir():
        # The model's own config.json was just written, and stays.
        is_new = file.is_file() and not (scratch / file.name).exists()
        if is_new and not file.name.endswith(_NOT_COPIED):
            shutil.copy(file, scratch / file.name)
    files = {f"model/{file.name}": file.read_bytes() for file in sorted(scratch.iterdir())}
    shutil.rmtree(scratch)
    files["optimizer.safetensors"] = save(_optimizer_tensors(policy))
    return files


def write(objects: ObjectStore, files: dict[str, bytes], state: State, keep: int) -> str:
    """Store a checkpoint and drop those past the newest `keep`; returns where it lies."""
    folder = _folder(state.step)
    for name, data in files.items():
        objects.put(f"{folder}/{name}", data)
    digests = {name: xxhash.xxh3_128_hexdigest(data) for name, data in files.items()}
    marker = json.dumps({**asdict(state), "files": digests}, indent=1)
    objects.put(f"{folder}/state.json", marker.encode())
    for step in steps(objects)[:-keep]:
        # The marker first: what is half deleted must not count.
        objects.delete(f"{_folder(step)}/state.json")
        for key in objects.list(_folder(step)):
            objects.delete(key)
    return objects.uri(folder)


def read_latest(objects: ObjectStore, into: Path) -> State | None:
    """Fetch the newest checkpoint into an empty folder, or return None before the first.

    Raises:
        DataLossError: a file does not match its digest.
    """
    found = steps(objects)
    if not found:
        return None
    folder = _folder(found[-1])
    marker: dict[str, Any] = json.loads(objects.get(f"{folder}/state.json"))
    for name, expected in marker["files"].items():
        data = objects.get(f"{folder}/{name}")
        if xxhash.xxh3_128_hexdigest(data) != expected:
            raise DataLossError(
                f"checkpoint file {objects.uri(f'{folder}/{name}')} is damaged: delete the folder "
                "to go on from the checkpoint before, if its step is not committed"
            )
        file = into / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    restores = {int(epoch): step for epoch, step in marker["restores"].items()}
    return State(marker["step"], marker["epoch"], restores)


def restore_optimizer(policy: Policy, folder: Path) -> None:
    """Put the optimizer's state back. The model was loaded from `folder`/model."""
    tensors = load((folder / "optimizer.safetensors").read_bytes())
    torch.set_rng_state(tensors.pop("rng"))
    state = policy.optimizer.state
    for name, parameter in policy.model.named_parameters():
        prefix = f"{name}."
        own = {key: value for key, value in tensors.items() if key.rpartition(".")[0] == name}
        if own:
            state[parameter] = {key.removeprefix(prefix): value for key, value in own.items()}


def _optimizer_tensors(policy: Policy) -> dict[str, torch.Tensor]:
    tensors = {"rng": torch.get_rng_state()}
    for name, parameter in policy.model.named_parameters():
        for key, value in policy.optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{key}"] = value.contiguous()
    return tensors
