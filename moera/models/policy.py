"""Loading a policy: weights, tokenizer, chat template, and the identity of the three.

Policies are ordinary Hugging Face folders. Nothing in them is executed: `trust_remote_code`
stays off, and weights are read from safetensors only.
"""

import hashlib
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from moera.errors import ConfigError
from moera.models.folder import check_folder
from moera.v1 import common_pb2

# Bars of a log file's lines help nobody.
transformers_logging.disable_progress_bar()

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def load_policy(path: str, dtype: str, attention: str = "sdpa") -> PreTrainedModel:
    """Load a causal language model onto the CPU in evaluation mode.

    Args:
        path: checkpoint folder.
        dtype: "float32" or "bfloat16".
        attention: name of a function registered with transformers' AttentionInterface.

    Raises:
        ConfigError: the folder is missing or incomplete, or the model is no MoE.
    """
    folder = check_folder(path)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=DTYPES[dtype],
        attn_implementation=attention,
        use_safetensors=True,
        local_files_only=True,
    )
    if num_experts(model.config) is None:
        raise ConfigError(f"model.path: {path!r} ({model.config.model_type}) has no experts")
    return model.eval()


def num_experts(config: Any) -> int | None:
    """Return the number of routed experts in a layer, or None for a dense model."""
    for name in ("num_experts", "num_local_experts", "n_routed_experts"):
        value = getattr(config, name, None)
        if value:
            return int(value)
    return None


def load_config(path: str) -> Any:
    """Load the model's configuration only."""
    return AutoConfig.from_pretrained(check_folder(path), local_files_only=True)


def load_tokenizer(path: str) -> Any:
    """Load the tokenizer; it must have a chat template.

    Raises:
        ConfigError: the folder has no tokenizer or no chat template.
    """
    folder = check_folder(path)
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(f"model.path: {path!r} has no tokenizer.json")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.chat_template:
        raise ConfigError(f"model.path: the tokenizer in {path!r} has no chat template")
    return tokenizer


def model_identity(path: str) -> common_pb2.ModelIdentity:
    """Return digests that say whether two servers speak the same tokens.

    Source: sha256 over the tokenizer's files and over the chat template text.
    """
    folder = check_folder(path)
    files = hashlib.sha256()
    for name in _TOKENIZER_FILES:
        if (folder / name).is_file():
            files.update(name.encode() + (folder / name).read_bytes())
    template = load_tokenizer(path).chat_template
    return common_pb2.ModelIdentity(
        model_id=folder.name,
        tokenizer_digest=files.hexdigest(),
        template_digest=hashlib.sha256(str(template).encode()).hexdigest(),
    )


def stop_token_ids(path: str) -> frozenset[int]:
    """Return the tokens that end a turn: those of generation_config.json, else the model's.

    Raises:
        ConfigError: the checkpoint names none, so that no turn would ever end.
    """
    folder = check_folder(path)
    named: Any = None
    if (folder / "generation_config.json").is_file():
        named = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    if named is None:
        named = getattr(load_config(path), "eos_token_id", None)
    if named is None:
        raise ConfigError(f"model.path: {path!r} names no eos_token_id in its configuration")
    return frozenset([named] if isinstance(named, int) else named)
