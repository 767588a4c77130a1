"""The policy in training: forward, backward, AdamW, and the weights as rollout servers load them.

Everything in here runs on the learner's one torch thread.
"""

from collections.abc import Mapping

import numpy as np
import torch
from transformers import PreTrainedModel

from moera.models.logprobs import chosen_logprobs
from moera.models.policy import DTYPES, load_policy
from moera.models.routing import LoadCounter
from moera.v1 import cache_pb2
from moera.wire import tensor_to_proto
from services.learner import algorithms
from services.learner.batches import Batch, Microbatch
from services.learner.config import LearnerSection, OptimizerSection

_PROBE_TOKENS = 48


class Policy:
    """The model with its optimizer; master weights are float32."""

    def __init__(self, path: str, dtype: str, section: LearnerSection, seed: int) -> None:
        torch.set_num_threads(section.threads)
        torch.manual_seed(seed)
        self._section = section
        self._published_dtype = DTYPES[dtype]
        self.model: PreTrainedModel = load_policy(path, "float32")
        self.model.set_experts_implementation(section.experts)
        self._load = LoadCounter(self.model)
        self.optimizer = _adamw(self.model, section.optimizer)
        self._probe_ids = _probe_ids(int(self.model.config.vocab_size))

    @property
    def bfloat16(self) -> bool:
        """Weights are published as bfloat16."""
        return self._published_dtype == torch.bfloat16

    # -- training --------------------------------------------------------------------------------

    def forward_backward(self, batch: Batch) -> dict[str, float]:
        """Accumulate the batch's gradient; returns means over its trained tokens."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        self._load.reset()
        sums: dict[str, float] = {}
        for microbatch in batch.microbatches:
            for name, value in self._microbatch(microbatch).items():
                sums[name] = sums.get(name, 0.0) + value
        tokens = max(1.0, sums.pop("tokens", 0.0))
        current = sums.pop("current_tokens", 0.0)
        mismatch = sums.pop("mismatch", 0.0)
        policy_loss = sums.pop("policy_loss", 0.0)
        metrics = {name: value / tokens for name, value in sums.items()}
        if current:
            metrics["logprob_mismatch_kl"] = mismatch / current
        return {"loss": policy_loss, "policy_loss": policy_loss, **metrics}

    def _microbatch(self, batch: Microbatch) -> dict[str, float]:
        algorithm = self._section.algorithm
        self._load.only(batch.filled)
        logprobs_N, entropy_N = chosen_logprobs(
            self.model,
            batch.token_ids,
            batch.position_ids,
            batch.chosen,
            self._section.sampling.temperature,
        )
        behaviour_N = batch.behaviour[batch.chosen]
        loss_N, clipped_N = algorithms.clipped_policy_loss(
            logprobs_N,
            behaviour_N,
            batch.advantages[batch.chosen],
            algorithm.clip_low,
            algorithm.clip_high,
        )
        loss = (loss_N * batch.weights[batch.chosen]).sum()
        loss.backward()
        with torch.no_grad():
            kl_N = algorithms.kl_estimate(behaviour_N, logprobs_N)
            current_N = batch.current[batch.chosen]
            return {
                "policy_loss": float(loss),
                "entropy": float(entropy_N.sum()),
                "kl": float(kl_N.sum()),
                "clip_fraction": float(clipped_N.sum()),
                "ratio_mean": float((logprobs_N - behaviour_N).exp().sum()),
                "mismatch": float(kl_N[current_N].sum()),
                "current_tokens": float(current_N.sum()),
                "tokens": float(len(logprobs_N)),
            }

    def update(self, step: int) -> tuple[dict[str, float], bool]:
        """Clip and apply the gradient; returns metrics and whether it was finite."""
        section = self._section.optimizer
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), section.max_grad_norm)
        lr = section.lr * min(1.0, step / section.warmup_steps if section.warmup_steps else 1.0)
        finite = bool(torch.isfinite(norm))
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        metrics = {"lr": lr, **self._load.summary()}
        if finite:
            metrics["grad_norm"] = float(norm)
        return metrics, finite

    def expert_load(self) -> list[list[float]]:
        """Return the share of tokens of each expert over the last batch, [layers][experts]."""
        return self._load.load()

    # -- publishing ------------------------------------------------------------------------------

    @torch.no_grad()
    def weights(self) -> dict[str, np.ndarray]:
        """Return copies of parameters and persistent buffers; bfloat16 as uint16 bits.

        Tied tensors appear once.
        """
        found: dict[str, np.ndarray] = {}
        seen: set[int] = set()
        for name, tensor in self.model.state_dict().items():
            if tensor.data_ptr() in seen:
                continue
            seen.add(tensor.data_ptr())
            found[name] = _as_array(tensor, self._published_dtype)
        return found

    @torch.no_grad()
    def probe(self) -> cache_pb2.Probe:
        """Return a fixed sequence's logprobs under the weights as they are published."""
        self.model.eval()
        ids = torch.tensor([self._probe_ids])
        rounded: Mapping[str, torch.Tensor] = {
            name: tensor.to(self._published_dtype).to(tensor.dtype)
            for name, tensor in self.model.named_parameters()
        }
        output = torch.func.functional_call(
            self.model, dict(rounded), kwargs={"input_ids": ids, "use_cache": False}
        )
        logprobs_TV = output.logits[0].float().log_softmax(-1)
        scored = logprobs_TV[:-1].gather(1, ids[0, 1:, None])[:, 0].numpy()
        logprobs = np.concatenate([[0.0], scored]).astype("<f4")
        return cache_pb2.Probe(token_ids=self._probe_ids, logprobs=tensor_to_proto(logprobs))


def _adamw(model: PreTrainedModel, section: OptimizerSection) -> torch.optim.AdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": section.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=section.lr, betas=section.betas)


def _probe_ids(vocabulary: int) -> list[int]:
    noise = np.random.default_rng(0)
    return noise.integers(0, vocabulary, _PROBE_TOKENS).tolist()


def _as_array(tensor: torch.Tensor, dtype: torch.dtype) -> np.ndarray:
    if not tensor.is_floating_point():
        return tensor.cpu().numpy().copy()
    if dtype == torch.bfloat16:
        return tensor.to(torch.bfloat16).view(torch.uint16).cpu().numpy().copy()
    return tensor.float().cpu().numpy().copy()
