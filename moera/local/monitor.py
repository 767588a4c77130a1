"""Readings of a running system: every service's status, at most one second old."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from moera import rpc
from moera.config import AddressesSection
from moera.errors import MoeraError
from moera.v1 import (
    cache_pb2,
    cache_pb2_grpc,
    envs_pb2,
    envs_pb2_grpc,
    learner_pb2,
    learner_pb2_grpc,
    rollout_pb2,
    rollout_pb2_grpc,
)

_DEADLINE_S = 1.0


@dataclass(frozen=True)
class Reading:
    """One reading; None where a service did not answer within a second."""

    time: float
    cache: cache_pb2.GetStatsResponse | None
    envs: envs_pb2.DescribeResponse | None
    learner: learner_pb2.GetLearnerStatusResponse | None
    rollouts: list[rollout_pb2.GetRolloutStatusResponse | None]

    @property
    def rollout_tokens_per_second(self) -> float:
        """Tokens sampled each second over all rollout servers that answered."""
        return sum(server.tokens_per_second for server in self.rollouts if server)

    def line(self) -> dict[str, Any]:
        """Return the reading as a line of monitor.jsonl."""
        counts = self.cache.counts if self.cache else cache_pb2.SampleCounts()
        return {
            "time": self.time,
            "rollout_tokens_per_second": self.rollout_tokens_per_second,
            "learner_step": self.learner.version.step if self.learner else None,
            "ready_groups": self.cache.ready_groups if self.cache else None,
            "outstanding_groups": self.cache.outstanding_groups if self.cache else None,
            "counts": {
                name: int(value)
                for name, value in MessageToDict(
                    counts,
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                ).items()
            }
            if self.cache
            else None,
        }


class Monitor:
    """Asks all services of a run for their status, side by side."""

    def __init__(self, addresses: AddressesSection) -> None:
        self._channels = [
            rpc.channel(address)
            for address in (addresses.cache, addresses.envs, addresses.learner, *addresses.rollouts)
        ]
        cache, envs, learner, *rollouts = self._channels
        self._cache = cache_pb2_grpc.ExperienceServiceStub(cache)
        self._envs = envs_pb2_grpc.EnvServiceStub(envs)
        self._learner = learner_pb2_grpc.LearnerServiceStub(learner)
        self._rollouts = [rollout_pb2_grpc.RolloutServiceStub(each) for each in rollouts]

    async def read(self) -> Reading:
        """Ask every service once."""
        status = rollout_pb2.GetRolloutStatusRequest()
        cache, envs, learner, *rollouts = await asyncio.gather(
            _ask(self._cache.GetStats, cache_pb2.GetStatsRequest()),
            _ask(self._envs.Describe, envs_pb2.DescribeRequest()),
            _ask(self._learner.GetLearnerStatus, learner_pb2.GetLearnerStatusRequest()),
            *(_ask(each.GetRolloutStatus, status) for each in self._rollouts),
        )
        return Reading(time.time(), cache, envs, learner, rollouts)

    async def close(self) -> None:
        """Close the channels."""
        await asyncio.gather(*(channel.close() for channel in self._channels))


async def _ask(method: Callable[..., Any], request: Any) -> Any:
    try:
        return await rpc.call(method, request, deadline_s=_DEADLINE_S)
    except MoeraError:
        return None
