"""Calling environments over gRPC: one client for each run, routed by environment and episode."""

import asyncio
from collections.abc import Sequence
from typing import Any

from moera import rpc
from moera.config import EnvironmentSection
from moera.errors import InvalidArgumentError
from moera.v1 import common_pb2, envs_pb2, envs_pb2_grpc

_PAGE = 1_000


class EnvClient:
    """Talks to the environments of a run.

    Args:
        environments: [[environment]] sections.
        default_address: host:port of the built-in environment service.
        deadline_s: of one call.
        patience_s: how long a call is tried again while a server is away or full.
    """

    def __init__(
        self,
        environments: Sequence[EnvironmentSection],
        default_address: str,
        *,
        deadline_s: float,
        patience_s: float,
    ) -> None:
        self._addresses = {each.id: each.address or default_address for each in environments}
        self._deadline_s = deadline_s
        self._patience_s = patience_s
        self._channels: dict[str, Any] = {}

    def address(self, env_id: str) -> str:
        """Return where an environment is served.

        Raises:
            InvalidArgumentError: the run has no such environment.
        """
        if env_id not in self._addresses:
            known = ", ".join(sorted(self._addresses)) or "none"
            raise InvalidArgumentError(f"the run has no environment {env_id!r}; it has: {known}")
        return self._addresses[env_id]

    async def call(self, address: str, method: str, request: Any, patience_s: float = -1.0) -> Any:
        """Call a method of EnvService at an address; a negative patience means the default.

        Raises:
            MoeraError: the typed error of the last attempt.
        """
        if address not in self._channels:
            self._channels[address] = rpc.channel(address)
        stub = envs_pb2_grpc.EnvServiceStub(self._channels[address])
        return await rpc.call(
            getattr(stub, method),
            request,
            deadline_s=self._deadline_s,
            patience_s=self._patience_s if patience_s < 0 else patience_s,
        )

    async def describe(self, env_id: str) -> envs_pb2.EnvironmentInfo:
        """Return what an environment says of itself.

        Raises:
            InvalidArgumentError: its server does not serve it.
        """
        address = self.address(env_id)
        described = await self.call(address, "Describe", envs_pb2.DescribeRequest())
        for info in described.environments:
            if info.env_id == env_id:
                return info
        served = ", ".join(info.env_id for info in described.environments)
        raise InvalidArgumentError(f"{address} does not serve {env_id!r}; it serves: {served}")

    async def list_tasks(self, env_id: str, split: str) -> list[common_pb2.Task]:
        """Return all tasks of a split, in index order."""
        tasks: list[common_pb2.Task] = []
        while True:
            request = envs_pb2.ListTasksRequest(
                env_id=env_id, split=split, offset=len(tasks), limit=_PAGE
            )
            page = await self.call(self.address(env_id), "ListTasks", request)
            tasks.extend(page.tasks)
            if page.end or not page.tasks:
                return tasks

    async def close(self) -> None:
        """Close all channels."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
