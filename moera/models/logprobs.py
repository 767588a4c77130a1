"""Logprobs of chosen tokens, without ever holding the logits of a whole batch.

Shapes: R packed rows, W tokens of a row, D model, N chosen tokens, V vocabulary.
"""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

_CHUNK = 1_024


def chosen_logprobs(
    model: PreTrainedModel,
    token_ids_RW: torch.Tensor,
    position_ids_RW: torch.Tensor,
    chosen_RW: torch.Tensor,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logprob of each chosen token given those before it, and the entropy there.

    Several sequences may share a row, one after the other: `position_ids_RW` restarts at 0 with
    each, and attention never crosses a restart. transformers sees the restarts only with
    `use_cache=False`; with a cache it would let sequences see each other.

    Args:
        chosen_RW: bool; never true for a sequence's first token.
        temperature: of the distribution; above 0.

    Returns:
        float32 [N] twice, row by row. Entropy carries no gradient.
    """
    hidden_RWD = model.model(
        input_ids=token_ids_RW, position_ids=position_ids_RW, use_cache=False
    ).last_hidden_state
    row, at = chosen_RW.nonzero(as_tuple=True)
    hidden_ND = hidden_RWD[row, at - 1]
    target_N = token_ids_RW[row, at]
    parts = [
        _checkpointed(model.lm_head, hidden_ND[start : start + _CHUNK], target_N[start:end], scale)
        for start, end, scale in (
            (start, start + _CHUNK, 1.0 / temperature)
            for start in range(0, max(1, len(target_N)), _CHUNK)
        )
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def _checkpointed(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    # Logits [chunk, V] are computed again in the backward pass instead of being kept.
    if torch.is_grad_enabled():
        return checkpoint(_chunk, *arguments, use_reentrant=False)  # type: ignore[return-value]
    return _chunk(*arguments)


def _chunk(
    head: torch.nn.Module, hidden_ND: torch.Tensor, target_N: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs_NV = (head(hidden_ND).float() * scale).log_softmax(-1)
    with torch.no_grad():
        entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
    return logprobs_NV.gather(1, target_N[:, None])[:, 0], entropy_N
