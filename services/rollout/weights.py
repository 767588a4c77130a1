"""Keeps the engine at the newest weight version.

    poll or watch -> pull (digests checked) -> swap between two steps -> probe -> serve
                                                                           |-> swap back

- The watch is only a hint; polling alone would do.
- A version whose probe disagrees is swapped out again before any token is sampled from it; after
  three tries it is passed over, and the last good version goes on serving.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import numpy as np

from moera import rpc, telemetry
from moera.errors import DataLossError, MoeraError, NotFoundError
from moera.v1 import cache_pb2, cache_pb2_grpc
from moera.weights.reader import Snapshot, WeightReader
from moera.wire import Version, tensor_from_proto
from services.rollout.config import RolloutSection
from services.rollout.engine import Engine, WeightUpdate
from services.rollout.engine_loop import EngineLoop

log = logging.getLogger(__name__)

_MAX_TRIES = 3
_WATCH_S = 60.0

_updates = telemetry.counter("moera.rollout.weight_updates")
_pause = telemetry.histogram("moera.rollout.weight_update_pause")


class WeightFollower:
    """Follows the latest version. `on_ready` hears whenever readiness may have changed."""

    def __init__(
        self,
        stub: cache_pb2_grpc.CheckpointServiceStub,
        engine: EngineLoop,
        section: RolloutSection,
        on_ready: Callable[[bool], Awaitable[None]],
    ) -> None:
        self._stub = stub
        self._engine = engine
        self._section = section
        self._on_ready = on_ready
        self._reader = WeightReader(stub)
        self._serving: Snapshot | None = None
        self._tries: Counter[Version] = Counter()
        self._hint = asyncio.Event()
        self._updated = asyncio.Event()
        self.newest: Version | None = None

    @property
    def serving(self) -> Version | None:
        """The version that tokens are sampled from; None before the first."""
        return self._serving.version if self._serving else None

    @property
    def reason(self) -> str:
        """Why the server is not ready; empty when it is."""
        if self.serving is None or self.newest is None:
            return "no weights yet"
        if self.serving.epoch < self.newest.epoch:
            return f"serves {self.serving} of a lineage that ended; newest is {self.newest}"
        if self.newest.step - self.serving.step > self._section.max_version_lag:
            return f"serves {self.serving}, too far behind {self.newest}"
        return ""

    @property
    def ready(self) -> bool:
        """The server may sample: it is at the living lineage and near the newest version."""
        return not self.reason

    async def updated(self) -> None:
        """Wait until another version is served."""
        await self._updated.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            while True:
                self._hint.clear()
                try:
                    await self.follow()
                except NotFoundError:
                    log.debug("no weights are published yet")
                except MoeraError as error:
                    log.warning("weights not updated: %s", error)
                await self._on_ready(self.ready)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hint.wait(), self._section.weights_poll_s)

    async def _watch(self) -> None:
        while True:
            request = cache_pb2.WatchVersionsRequest()
            if self.newest:
                request.after.CopyFrom(self.newest.proto())
            with contextlib.suppress(MoeraError):
                async for _ in rpc.stream(self._stub.WatchVersions, request, deadline_s=_WATCH_S):
                    self._hint.set()
            await asyncio.sleep(self._section.weights_poll_s)

    async def follow(self) -> None:
        """Serve the newest version, unless it is being served or was passed over.

        Raises:
            MoeraError: it could not be pulled or was refused; the old version goes on serving.
        """
        header = await self._reader.latest_header()
        self.newest = version = Version.of(header.version)
        if version == self.serving or self._tries[version] >= _MAX_TRIES:
            return
        attributes = {telemetry.VERSION: str(version)}
        with telemetry.span(
            telemetry.WEIGHT_UPDATE, attributes, links=[header.traceparent]
        ) as span:
            try:
                snapshot = await self._reader.pull(version)
                pause_s = await self._engine.run(lambda engine: self._swap(engine, snapshot))
            except MoeraError as error:
                if isinstance(error, DataLossError):
                    self._tries[version] += 1
                    # What is held may be what is broken: begin with the anchor next time.
                    self._reader = WeightReader(self._stub)
                _updates.add(1, outcome="failed")
                span.set_attribute("error", str(error))
                raise
        self._serving = snapshot
        self._updated.set()
        self._updated = asyncio.Event()
        self._tries.clear()
        _updates.add(1, outcome="applied")
        _pause.record(pause_s)
        log.info("serving version %s (engine paused %.0f ms)", version, pause_s * 1e3)

    def _swap(self, engine: Engine, new: Snapshot) -> float:
        """Put new weights in, and back out if the probe disagrees. Runs on the engine's thread."""
        began = time.perf_counter()
        engine.update_weights(WeightUpdate(new.version, new.tensors))
        difference = _probe_difference(engine, new.header)
        if difference > self._section.probe_tolerance:
            old = self._serving
            if old is not None:
                engine.update_weights(WeightUpdate(old.version, old.tensors))
            raise DataLossError(
                f"version {new.version}: logprobs of the probe differ by {difference:.4f} nats "
                f"(median), more than rollout.probe_tolerance = {self._section.probe_tolerance}"
            )
        return time.perf_counter() - began


def _probe_difference(engine: Engine, header: cache_pb2.ManifestHeader) -> float:
    if not header.HasField("probe"):
        return 0.0
    expected = tensor_from_proto(header.probe.logprobs)
    found = engine.score(list(header.probe.token_ids), 1.0)
    return float(np.median(np.abs(found - expected)))
