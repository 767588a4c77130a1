"""The native engine: one `step` is schedule, prefill, decode, sample."""

import numpy as np
import torch

from moera.errors import DataLossError, InvalidArgumentError
from moera.models import paged_attention
from moera.models.policy import DTYPES, load_policy
from moera.v1 import common_pb2
from moera.wire import Version
from services.rollout.config import RolloutSection
from services.rollout.engine import EngineStats, Output, Request, WeightUpdate
from services.rollout.native.blocks import BlockPool
from services.rollout.native.runner import Runner
from services.rollout.native.sampler import Draw, sample
from services.rollout.native.scheduler import Scheduler, Sequence


class NativeEngine:
    """Continuous batching over a transformers model, on the CPU."""

    def __init__(self, path: str, dtype: str, section: RolloutSection) -> None:
        torch.set_num_threads(section.threads)
        self._model = load_policy(path, dtype, attention=paged_attention.NAME)
        self._model.set_experts_implementation(section.experts)
        position_bytes = paged_attention.bytes_per_position(self._model.config, DTYPES[dtype])
        size = section.block_size
        num_blocks = max(2, section.kv_cache_mib * 2**20 // (position_bytes * size))
        cache = paged_attention.PagedCache(self._model.config, num_blocks, size, DTYPES[dtype])
        # The last block is never handed out: padding is written to its end.
        self._pool = BlockPool(num_blocks - 1, size)
        self._scheduler = Scheduler(self._pool, section.max_batch, section.max_prefill_tokens)
        self._runner = Runner(self._model, cache, section.record_routes)
        self._recompute = section.on_update == "recompute"
        self._sequences: dict[str, Sequence] = {}
        self._version = Version(0, 0)
        self._sampled = 0
        self._max_positions = getattr(self._model.config, "max_position_embeddings", 2**31)

    @property
    def busy(self) -> bool:
        """There is something to step."""
        return bool(self._sequences)

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            InvalidArgumentError: it can never fit, or its id is taken.
        """
        if request.request_id in self._sequences:
            raise InvalidArgumentError(f"request id {request.request_id!r} is taken")
        if len(request.prompt) + request.max_new_tokens > self._max_positions:
            raise InvalidArgumentError(
                f"{request.request_id}: prompt of {len(request.prompt)} tokens and "
                f"{request.max_new_tokens} new ones exceed the model's {self._max_positions}"
            )
        vocabulary = self._model.config.vocab_size
        if any(not 0 <= token < vocabulary for token in request.prompt):
            raise InvalidArgumentError(
                f"{request.request_id}: a token id is not in [0, {vocabulary})"
            )
        sequence = Sequence(request, list(request.prompt))
        self._scheduler.add(sequence)
        self._sequences[request.request_id] = sequence

    def abort(self, request_id: str) -> None:
        """Forget a request; what it sampled so far has been returned by `step`."""
        sequence = self._sequences.pop(request_id, None)
        if sequence:
            self._scheduler.remove(sequence)

    def step(self) -> list[Output]:
        """Sample one token for every sequence that fits."""
        prefill, decode = self._scheduler.schedule(self._version)
        outputs = []
        for batch in (prefill, decode):
            if batch:
                outputs += self._sample(batch)
        for sequence in prefill:
            if sequence.blocks:
                self._scheduler.seal(sequence, self._version)
        for output in outputs:
            if output.finish_reason is not None:
                self.abort(output.request_id)
        self._sampled += len(outputs)
        return outputs

    def _sample(self, batch: list[Sequence]) -> list[Output]:
        logits_BV, routes = self._runner.forward(batch)
        draws = [
            Draw(
                sequence.request.sampling,
                sequence.request.sampling_seed,
                sequence.request.noise_key,
                len(sequence.token_ids),
            )
            for sequence in batch
        ]
        tokens, logprobs = sample(logits_BV, draws)
        outputs = []
        for row, sequence in enumerate(batch):
            sequence.token_ids.append(tokens[row])
            outputs.append(
                Output(
                    sequence.request.request_id,
                    tokens[row],
                    logprobs[row],
                    self._version,
                    routes[row][-1] if routes else None,
                    _finish_reason(sequence),
                )
            )
        return outputs

    @torch.no_grad()
    def update_weights(self, update: WeightUpdate) -> None:
        """Copy new weights in; nothing is changed unless every name and shape fits.

        Raises:
            DataLossError: a tensor is missing, unknown, or of another shape.
        """
        own = self._model.state_dict()
        staged = {}
        for name, array in update.tensors.items():
            if name not in own or tuple(own[name].shape) != array.shape:
                shape = tuple(own[name].shape) if name in own else "nothing"
                raise DataLossError(f"weights hold {name} {array.shape}, the model {shape}")
            staged[name] = _as_tensor(array, own[name].dtype)
        tied = {own[name].data_ptr() for name in staged}
        missing = [name for name, tensor in own.items() if tensor.data_ptr() not in tied]
        if missing:
            raise DataLossError(f"weights of version {update.version} lack {missing[:3]}")
        for name, tensor in staged.items():
            own[name].copy_(tensor)
        self._version = update.version
        self._pool.forget_all()
        if self._recompute:
            self._scheduler.recompute_all()

    @torch.inference_mode()
    def score(self, token_ids: list[int], temperature: float) -> np.ndarray:
        """Return float32 [T] logprobs of given tokens; 0 for the first."""
        if not token_ids:
            raise InvalidArgumentError("nothing to score")
        size = self._pool.block_size
        needed = -(-len(token_ids) // size)
        blocks: list[int] = []
        try:
            blocks += (self._pool.allocate() for _ in range(needed))
            probe = Sequence(Request("score", token_ids, common_pb2.SamplingParams(), 0), token_ids)
            probe.blocks = blocks
            logits_TV = self._runner.all_logits(probe)
        finally:
            self._pool.release(blocks)
        logprobs_TV = (logits_TV.float() / (temperature or 1.0)).log_softmax(-1)
        targets = torch.tensor(token_ids[1:])
        scored = logprobs_TV[:-1].gather(1, targets[:, None])[:, 0]
        return np.concatenate([[0.0], scored.numpy()]).astype(np.float32)

    def stats(self) -> EngineStats:
        """Return a reading."""
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            free_blocks=self._pool.num_free,
            num_blocks=self._pool.num_blocks,
            sampled_tokens=self._sampled,
            prefix_hit_tokens=self._scheduler.prefix_hit_tokens,
            preemptions=self._scheduler.preemptions,
        )


def _finish_reason(sequence: Sequence) -> "common_pb2.FinishReason | None":
    if sequence.token_ids[-1] in sequence.request.stop_token_ids:
        return common_pb2.FINISH_REASON_STOP
    if sequence.num_sampled >= sequence.request.max_new_tokens:
        return common_pb2.FINISH_REASON_LENGTH
    return None


def _as_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    # bfloat16 travels as uint16 bits.
    writable = array if array.flags.writeable else array.copy()
    tensor = torch.from_numpy(writable)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor.to(dtype)
