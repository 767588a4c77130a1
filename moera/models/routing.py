"""What the routers of a model chose: recorded by hooks, summarised for people.

Shapes: T tokens, L MoE layers, E experts, K experts chosen for each token.
"""

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from moera.errors import ConfigError
from moera.models.policy import num_experts


def routers(model: PreTrainedModel) -> list[torch.nn.Module]:
    """Return the router module of every MoE layer, in layer order.

    Source: transformers 5 calls them "...TopKRouter", with output (logits, weights, ids).
    """
    return [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]


class RouteRecorder:
    """Collects the ids of the chosen experts over one forward pass."""

    def __init__(self, model: PreTrainedModel) -> None:
        found = routers(model)
        experts = num_experts(model.config)
        if not found or experts is None:
            raise ConfigError(
                f"routes of {model.config.model_type} cannot be recorded: no top-k routers found"
            )
        self.shape = (len(found), int(model.config.num_experts_per_tok))
        self._dtype = np.uint8 if experts <= 256 else np.uint16
        self._layers: list[torch.Tensor] = []
        for router in found:
            router.register_forward_hook(self._record)

    def start(self) -> None:
        """Forget what was recorded."""
        self._layers = []

    def take(self) -> np.ndarray:
        """Return [T, L, K] of the tokens since `start`."""
        stacked = torch.stack(self._layers, dim=1)
        return stacked.cpu().numpy().astype(self._dtype)

    def _record(self, _module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        self._layers.append(output[2].detach().flatten(0, -2))


class LoadCounter:
    """Counts how many tokens each expert got, and the routers' entropy, over many passes."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._experts = num_experts(model.config) or 0
        self._found = routers(model)
        for layer, router in enumerate(self._found):
            router.register_forward_hook(self._make_hook(layer))
        self.reset()

    def only(self, filled: torch.Tensor) -> None:
        """Count only the tokens of the next passes that are true in this bool tensor."""
        self._filled_T = filled.flatten()

    def reset(self) -> None:
        """Start counting anew."""
        self._filled_T: torch.Tensor | None = None
        self._load_LE = torch.zeros(len(self._found), self._experts, dtype=torch.float64)
        self._entropy_sum = 0.0
        self._rows = 0

    def _make_hook(self, layer: int) -> Any:
        def count(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
            if not torch.is_grad_enabled():
                return
            logits_TE = output[0].detach().flatten(0, -2).float()
            chosen_TK = output[2].detach().flatten(0, -2)
            if self._filled_T is not None:
                logits_TE, chosen_TK = logits_TE[self._filled_T], chosen_TK[self._filled_T]
            chosen = chosen_TK.flatten()
            self._load_LE[layer] += torch.bincount(chosen, minlength=self._experts)
            probs_TE = logits_TE.softmax(-1)
            entropy = -(probs_TE * probs_TE.clamp_min(1e-20).log()).sum(-1)
            self._entropy_sum += float(entropy.sum())
            self._rows += len(entropy)

        return count

    def load(self) -> list[list[float]]:
        """Return the share of tokens of each expert, [L][E]; rows sum to 1."""
        total = self._load_LE.sum(dim=1, keepdim=True).clamp_min(1)
        return (self._load_LE / total).tolist()

    def summary(self) -> dict[str, float]:
        """Return max violation (largest load over the mean, minus 1), entropy and dead experts.

        Source of max violation: "Auxiliary-Loss-Free Load Balancing", arXiv 2408.15664.
        """
        if not self._found or not self._rows:
            return {}
        share_LE = np.array(self.load())
        return {
            "router_max_violation": float((share_LE.max(1) * self._experts - 1).max()),
            "router_entropy": self._entropy_sum / self._rows,
            "dead_experts": float((share_LE == 0).sum()),
        }
