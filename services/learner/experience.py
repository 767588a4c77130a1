"""The learner's side of the cache: lineage, groups out, batches in."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

from moera import rpc, wire
from moera.errors import DataLossError, NotFoundError, ResourceExhaustedError, UnavailableError
from moera.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from services.learner.config import LearnerSection
from services.learner.tasks import TaskSource

_DEADLINE_S = 30.0
_POLL_S = 1.0
_FULL_S = 0.2
_FETCH = 64

_ON_STALE = {
    "evict": cache_pb2.ON_STALE_EVICT,
    "mask_tokens": cache_pb2.ON_STALE_MASK_TOKENS,
}


class Experience:
    """Calls ExperienceService under one lineage's fence."""

    def __init__(
        self, stub: cache_pb2_grpc.ExperienceServiceStub, section: LearnerSection, run_id: str
    ) -> None:
        self._stub = stub
        self._section = section
        self._run_id = run_id
        self.fence = cache_pb2.Fence()
        self._next_draw = 0

    async def _ask(self, method: Any, request: Any, wait_s: float = 0.0) -> Any:
        return await rpc.call(
            method,
            request,
            deadline_s=_DEADLINE_S + wait_s,
            patience_s=self._section.patience_s,
        )

    async def open_lineage(self, restored_step: int) -> int:
        """Become the living lineage; returns its epoch.

        Raises:
            FailedPreconditionError: a later step is committed already.
        """
        opened = await self._ask(
            self._stub.OpenLineage,
            cache_pb2.OpenLineageRequest(
                request_id=uuid.uuid4().hex,
                run_id=self._run_id,
                restored_step=restored_step,
                budget=cache_pb2.StalenessBudget(
                    groups_per_step=self._section.groups_per_step,
                    max_staleness=self._section.max_staleness,
                    on_stale=_ON_STALE[self._section.on_stale],
                ),
            ),
        )
        self.fence = opened.fence
        self._next_draw = opened.enqueued_groups
        return opened.fence.epoch

    async def keep_enqueueing(self, source: TaskSource) -> None:
        """Offer groups for as long as the run lasts; the cache takes what the budget allows."""
        while True:
            offered = [
                source.group(self._next_draw + index)
                for index in range(self._section.groups_per_step)
            ]
            accepted = await self.enqueue(offered)
            self._next_draw += accepted
            if accepted < len(offered):
                await asyncio.sleep(_FULL_S)

    async def enqueue(self, groups: Sequence[common_pb2.Group]) -> int:
        """Offer groups; returns how many were accepted, always the first ones."""
        request = cache_pb2.EnqueueRequest(fence=self.fence, groups=groups)
        response = await self._ask(self._stub.Enqueue, request)
        return len(response.accepted_group_ids)

    async def take(self, step: int) -> cache_pb2.TakeBatchResponse:
        """Ask for a step's batch, waiting a moment; it may not be assigned yet."""
        request = cache_pb2.TakeBatchRequest(
            fence=self.fence, step=step, wait_ms=int(_POLL_S * 1e3)
        )
        return await self._ask(self._stub.TakeBatch, request, _POLL_S)

    async def stats(self) -> cache_pb2.GetStatsResponse:
        """Read the accounting."""
        return await self._ask(self._stub.GetStats, cache_pb2.GetStatsRequest())

    async def fetch(self, sample_ids: Sequence[str]) -> dict[str, common_pb2.Trajectory]:
        """Return committed trajectories by sample id.

        Raises:
            DataLossError: the cache has lost one.
        """
        found: dict[str, common_pb2.Trajectory] = {}
        for start in range(0, len(sample_ids), _FETCH):
            payloads = await self._fetch(sample_ids[start : start + _FETCH])
            for sample_id, payload in payloads.items():
                found[sample_id] = wire.unpack(payload, common_pb2.Trajectory)
        return found

    async def _fetch(self, sample_ids: Sequence[str]) -> dict[str, common_pb2.Payload]:
        give_up_at = time.monotonic() + self._section.patience_s
        while True:
            try:
                return await self._fetch_once(sample_ids)
            except NotFoundError as error:
                raise DataLossError(
                    f"the cache has lost an assigned trajectory: {error}"
                ) from error
            except (UnavailableError, ResourceExhaustedError):
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(_POLL_S)

    async def _fetch_once(self, sample_ids: Sequence[str]) -> dict[str, common_pb2.Payload]:
        request = cache_pb2.FetchTrajectoriesRequest(sample_ids=sample_ids)
        payloads: dict[str, common_pb2.Payload] = {}
        async for part in rpc.stream(self._stub.FetchTrajectories, request, deadline_s=_DEADLINE_S):
            if part.sample_id in payloads:
                payloads[part.sample_id].data += part.trajectory.data
            else:
                payloads[part.sample_id] = part.trajectory
        return payloads

    async def commit_step(self, step: int, checkpoint_uri: str) -> None:
        """Retire the batches that a durable checkpoint covers."""
        request = cache_pb2.CommitStepRequest(
            fence=self.fence, step=step, checkpoint_uri=checkpoint_uri
        )
        await self._ask(self._stub.CommitStep, request)

    async def collect_eval(self, eval_id: str) -> cache_pb2.CollectEvalResponse:
        """Return an evaluation's finished samples once all are, then forget it."""
        request = cache_pb2.CollectEvalRequest(eval_id=eval_id, wait_ms=int(_POLL_S * 1e3))
        while True:
            response = await self._ask(self._stub.CollectEval, request, _POLL_S)
            if response.done:
                await self.release_eval(eval_id)
                return response

    async def release_eval(self, eval_id: str) -> None:
        """Forget an evaluation; one that never was is fine."""
        request = cache_pb2.ReleaseEvalRequest(eval_id=eval_id)
        await self._ask(self._stub.ReleaseEval, request)
