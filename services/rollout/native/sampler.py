"""Drawing tokens, with the logprob of the distribution that was really drawn from.

Noise is counter-based: a sample's token at a position depends on (seed, key, position) and the
logits alone, never on what else is in the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xxhash

from moera.v1 import common_pb2


@dataclass(frozen=True)
class Draw:
    """How one row of logits is sampled."""

    sampling: common_pb2.SamplingParams
    seed: int
    key: str
    position: int


def uniform(draw: Draw) -> float:
    """Return the noise of a draw, uniform in (0, 1)."""
    text = f"{draw.seed}/{draw.key}/{draw.position}"
    return (xxhash.xxh3_64_intdigest(text.encode()) + 0.5) / 2**64


def sample(logits_BV: torch.Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """Draw one token for each row by inverting the cumulative distribution.

    At temperature 0 the likeliest token is taken and its logprob is that of temperature 1.

    Args:
        logits_BV: [B, vocabulary].

    Returns:
        Token ids and logprobs, B each.
    """
    temperature_B = torch.tensor([draw.sampling.temperature or 1.0 for draw in draws])
    logprobs_BV = torch.log_softmax(logits_BV.float() / temperature_B[:, None], dim=-1)
    for row, draw in enumerate(draws):
        if _filters(draw.sampling):
            logprobs_BV[row] = filtered(logprobs_BV[row], draw.sampling)
    noise_B = torch.tensor([uniform(draw) for draw in draws], dtype=torch.float64)
    cumulative_BV = logprobs_BV.double().exp().cumsum(dim=-1)
    # Scaled by the total, which rounding keeps a little off 1.
    drawn_B = torch.searchsorted(cumulative_BV, (noise_B * cumulative_BV[:, -1])[:, None])[:, 0]
    greedy_B = torch.tensor([draw.sampling.temperature == 0 for draw in draws])
    token_B = torch.where(greedy_B, logprobs_BV.argmax(dim=-1), drawn_B)
    chosen_B = logprobs_BV.gather(1, token_B[:, None])[:, 0]
    return token_B.tolist(), chosen_B.tolist()


def _filters(sampling: common_pb2.SamplingParams) -> bool:
    return bool(
        sampling.temperature and (0 < sampling.top_p < 1 or sampling.top_k or sampling.min_p)
    )


def filtered(logprobs_V: torch.Tensor, sampling: common_pb2.SamplingParams) -> torch.Tensor:
    """Return the renormalised logprobs after top-k, min-p and top-p; -inf where dropped."""
    keep_V = torch.ones_like(logprobs_V, dtype=torch.bool)
    if sampling.top_k and sampling.top_k < len(logprobs_V):
        keep_V &= logprobs_V >= logprobs_V.topk(sampling.top_k).values[-1]
    if sampling.min_p:
        keep_V &= logprobs_V.exp() >= sampling.min_p * logprobs_V.max().exp()
    if 0 < sampling.top_p < 1:
        sorted_V, order_V = logprobs_V.exp().sort(descending=True)
        before_V = sorted_V.cumsum(0) - sorted_V
        keep_V[order_V[before_V >= sampling.top_p]] = False
    return torch.log_softmax(logprobs_V.masked_fill(~keep_V, -torch.inf), dim=-1)
