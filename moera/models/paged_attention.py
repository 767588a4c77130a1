"""Attention over a paged KV cache, registered with transformers' AttentionInterface.

The engine runs the learner's own model code; only the attention function differs. A forward
pass takes its place in the cache from `PagedContext`, set around the call.

Shapes: B sequences, Q new tokens each (padded), H query heads, G key-value heads, D head size,
S cached positions (padded), N blocks of P positions.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, PretrainedConfig

NAME = "moera_paged"


class PagedCache:
    """Keys and values of all layers, [layers, N * P, G, D] each."""

    def __init__(
        self, config: PretrainedConfig, num_blocks: int, block_size: int, dtype: torch.dtype
    ) -> None:
        shape = (config.num_hidden_layers, num_blocks * block_size, *kv_shape(config))
        self.block_size = block_size
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)


def kv_shape(config: PretrainedConfig) -> tuple[int, int]:
    """Return (G, D) of a model with grouped-query attention."""
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return getattr(config, "num_key_value_heads", None) or heads, head_dim


def bytes_per_position(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Return the cache bytes of one token over all layers."""
    groups, head_dim = kv_shape(config)
    return 2 * config.num_hidden_layers * groups * head_dim * dtype.itemsize


@dataclass
class PagedContext:
    """Where the tokens of one forward pass live in the cache."""

    cache: PagedCache
    write_slots: torch.Tensor
    """int64 [B * Q]: cache position of each new token; padding writes to the last block's end."""
    read_slots: torch.Tensor
    """int64 [B, S]: cache position of each earlier or new position of each sequence."""
    mask: torch.Tensor
    """bool [B, 1, Q, S]: which cached positions each new token may see."""


_context: PagedContext | None = None


@contextlib.contextmanager
def paged(context: PagedContext) -> Iterator[None]:
    """Run forward passes inside the block over the paged cache. One thread at a time."""
    global _context  # noqa: PLW0603 (transformers calls the function without room for arguments)
    _context = context
    try:
        yield
    finally:
        _context = None


def paged_attention(
    module: torch.nn.Module,
    query_BHQD: torch.Tensor,
    key_BGQD: torch.Tensor,
    value_BGQD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Write the new keys and values into the cache and attend over all cached positions.

    Returns:
        [B, Q, H, D] and None, as transformers expects.
    """
    context = _context
    assert context is not None, "paged attention outside of `paged(...)`"
    layer = int(cast(int, module.layer_idx))
    keys, values = context.cache.keys[layer], context.cache.values[layer]
    keys[context.write_slots] = key_BGQD.transpose(1, 2).flatten(0, 1)
    values[context.write_slots] = value_BGQD.transpose(1, 2).flatten(0, 1)
    out_BHQD = F.scaled_dot_product_attention(
        query_BHQD,
        keys[context.read_slots].transpose(1, 2),
        values[context.read_slots].transpose(1, 2),
        attn_mask=context.mask,
        scale=options.get("scaling"),
        enable_gqa=query_BHQD.shape[1] != key_BGQD.shape[1],
    )
    return out_BHQD.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, paged_attention)
