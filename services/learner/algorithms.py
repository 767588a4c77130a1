"""Advantages, policy loss and aggregation as pure functions over tensors.

Shapes: G groups, S samples of a group, B sequences, T tokens of a sequence.
"""

from collections.abc import Sequence

import torch

_EPSILON = 1e-6


def advantages(rewards: Sequence[float], kind: str) -> list[float]:
    """Return one advantage for each sample of a group.

    Args:
        rewards: rewards of the group's trainable samples, at least two.
        kind: "grpo" (mean subtracted, divided by the population standard deviation plus 1e-6),
            "dr_grpo" (mean subtracted only) or "rloo" (mean of the others subtracted).

    Sources: DeepSeekMath (arXiv 2402.03300), Understanding R1-Zero-like training
    (arXiv 2503.20783), Back to basics (arXiv 2402.14740).
    """
    values_S = torch.tensor(rewards, dtype=torch.float64)
    if len(values_S) < 2:
        raise ValueError("a group needs at least two rewards")
    centred_S = values_S - values_S.mean()
    if kind == "grpo":
        centred_S = centred_S / (values_S.std(correction=0) + _EPSILON)
    elif kind == "rloo":
        # The mean of the others: x - (sum - x) / (n - 1) = (x - mean) * n / (n - 1).
        centred_S = centred_S * len(values_S) / (len(values_S) - 1)
    elif kind != "dr_grpo":
        raise ValueError(f"unknown advantage {kind!r}")
    return centred_S.tolist()


def clipped_policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantage: torch.Tensor,
    clip_low: float,
    clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each token's loss and whether the clip took its gradient; all inputs [B, T].

    Source: PPO (arXiv 1707.06347) with the asymmetric clip of DAPO (arXiv 2503.14476).
    """
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    binds = ((ratio > 1 + clip_high) & (advantage > 0)) | ((ratio < 1 - clip_low) & (advantage < 0))
    return loss, binds


def token_weights(counts: Sequence[int], aggregation: str) -> list[float]:
    """Return the weight of each policy token of each sequence in the batch's loss.

    The weights depend on the whole batch alone, so that the sum over micro-batches is the same
    however the batch was cut or packed.

    Args:
        counts: policy tokens of each sequence; sequences without any get weight 0.
        aggregation: "token" (mean over all tokens) or "sequence" (mean of sequence means).
    """
    if aggregation == "token":
        total = sum(counts)
        return [1 / total if count else 0.0 for count in counts]
    if aggregation == "sequence":
        used = sum(count > 0 for count in counts)
        return [1 / (used * count) if count else 0.0 for count in counts]
    raise ValueError(f"unknown aggregation {aggregation!r}")


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return the per-token estimate of KL(policy || reference) that is never negative.

    Source: "k3" of Schulman, Approximating KL divergence, 2020.
    """
    difference = reference - logprobs
    return difference.exp() - 1 - difference
