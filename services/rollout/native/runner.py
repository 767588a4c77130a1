"""Forward passes: sequences in, logits of their last tokens out.

Shapes: B sequences, Q new tokens each (padded on the right), S cached positions (padded).
"""

from collections.abc import Sequence as Seq

import numpy as np
import torch
from transformers import PreTrainedModel

from moera.models.paged_attention import PagedCache, PagedContext, paged
from moera.models.routing import RouteRecorder
from services.rollout.native.scheduler import Sequence


class Runner:
    """Runs the model over the paged cache."""

    def __init__(self, model: PreTrainedModel, cache: PagedCache, record_routes: bool) -> None:
        self._model = model
        self._cache = cache
        self._routes = RouteRecorder(model) if record_routes else None

    def all_logits(self, sequence: Sequence) -> torch.Tensor:
        """Return the logits [T, vocabulary] after every token of one sequence."""
        hidden_BQD, _, _ = self._hidden([sequence])
        return self._model.lm_head(hidden_BQD[0])

    @torch.inference_mode()
    def forward(self, batch: Seq[Sequence]) -> tuple[torch.Tensor, list[np.ndarray] | None]:
        """Feed every token that is not cached yet.

        Returns:
            Logits [B, vocabulary] after each sequence's last token, and, when routes are
            recorded, the experts of each sequence's new tokens: B arrays [new, layers, top_k].
        """
        hidden_BQD, news, routes = self._hidden(batch)
        last = torch.tensor(news) - 1
        logits_BV = self._model.lm_head(hidden_BQD[torch.arange(len(batch)), last])
        for sequence in batch:
            sequence.num_cached = len(sequence.token_ids)
        return logits_BV, routes

    def _hidden(
        self, batch: Seq[Sequence]
    ) -> tuple[torch.Tensor, list[int], list[np.ndarray] | None]:
        news = [len(sequence.token_ids) - sequence.num_cached for sequence in batch]
        width = max(news)
        tokens_BQ = np.zeros((len(batch), width), np.int64)
        positions_BQ = np.zeros((len(batch), width), np.int64)
        for row, (sequence, new) in enumerate(zip(batch, news, strict=True)):
            tokens_BQ[row, :new] = sequence.token_ids[sequence.num_cached :]
            positions_BQ[row] = sequence.num_cached + np.arange(width)
        context = self._context(batch, news, positions_BQ)
        if self._routes:
            self._routes.start()
        with paged(context):
            hidden_BQD = self._model.model(
                input_ids=torch.from_numpy(tokens_BQ),
                position_ids=torch.from_numpy(positions_BQ),
                use_cache=False,
            ).last_hidden_state
        if self._routes is None:
            return hidden_BQD, news, None
        chosen = self._routes.take().reshape(len(batch), width, *self._routes.shape)
        return hidden_BQD, news, [rows[:new] for rows, new in zip(chosen, news, strict=True)]

    def _context(
        self, batch: Seq[Sequence], news: list[int], positions_BQ: np.ndarray
    ) -> PagedContext:
        size = self._cache.block_size
        most_blocks = max(len(sequence.blocks) for sequence in batch)
        blocks = np.zeros((len(batch), most_blocks), np.int64)
        for row, sequence in enumerate(batch):
            blocks[row, : len(sequence.blocks)] = sequence.blocks
        longest = max(len(sequence.token_ids) for sequence in batch)
        slots = (blocks[:, :, None] * size + np.arange(size)).reshape(len(batch), -1)
        read_BS = slots[:, :longest]
        inside_BQ = np.arange(positions_BQ.shape[1]) < np.array(news)[:, None]
        # Padding is written where nobody reads: behind the cache's last usable position.
        scratch = self._cache.keys.shape[1] - 1
        write_BQ = np.full(positions_BQ.shape, scratch)
        clipped = np.minimum(positions_BQ, slots.shape[1] - 1)
        own = np.take_along_axis(slots, clipped, axis=1)
        write_BQ[inside_BQ] = own[inside_BQ]
        # Padded queries see their first position only, so that their softmax stays finite.
        seen_BQ = np.where(inside_BQ, positions_BQ, 0)
        mask_BQS = np.arange(longest) <= seen_BQ[:, :, None]
        return PagedContext(
            self._cache,
            torch.from_numpy(write_BQ.reshape(-1)),
            torch.from_numpy(read_BS),
            torch.from_numpy(mask_BQS[:, None]),
        )
