"""Pulls samples from the cache, plays them side by side, and hands in what became of them.

    lease (long poll) -> Episode.play -> commit
                              |-> fail (typed)        |-> give back with a partial

- Leases are renewed by heartbeat; one that is lost stops its episode at once.
- `drain` is the one way out, for SIGTERM, a Spot notice and the Drain call alike: no new leases,
  every running sample is stored as a partial and given up.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from moera import rpc, telemetry, wire
from moera.errors import AbortedError, MoeraError
from moera.v1 import cache_pb2, cache_pb2_grpc, common_pb2, envs_pb2
from services.rollout.episode import Episode, GiveBackError, SampleFailedError, Stage
from services.rollout.progress import from_lease
from services.rollout.weights import WeightFollower

log = logging.getLogger(__name__)

_LEASE_WAIT_S = 2.0
_DEADLINE_S = 20.0
_UPLOAD_PIECE_BYTES = 2**20

_samples = telemetry.counter("moera.rollout.samples")
_running = telemetry.up_down_counter("moera.rollout.running")


@dataclass
class _Running:
    lease: cache_pb2.LeaseRef
    episode: Episode
    task: asyncio.Task[None]
    saved_tokens: int = 0


class Worker:
    """The lease, play, commit loop of one rollout server."""

    def __init__(
        self,
        cache: cache_pb2_grpc.ExperienceServiceStub,
        weights: WeightFollower,
        stage: Stage,
        model: common_pb2.ModelIdentity,
    ) -> None:
        self._cache = cache
        self._weights = weights
        self._stage = stage
        self._section = stage.section
        self._model = model
        self._runs: dict[str, _Running] = {}
        self._room = asyncio.Event()
        self.draining = False
        self.drained = asyncio.Event()
        self._leasing_ended = asyncio.Event()

    @property
    def num_running(self) -> int:
        """Samples being played."""
        return len(self._runs)

    async def run(self) -> None:
        """Lease and play until drained."""
        async with asyncio.TaskGroup() as group:
            heartbeat = group.create_task(self._heartbeat())
            await self._lease_loop()
            self._leasing_ended.set()
            await self.drained.wait()
            heartbeat.cancel()

    async def _lease_loop(self) -> None:
        while not self.draining:
            free = self._section.max_running_samples - len(self._runs)
            if free <= 0 or not self._weights.ready:
                self._room.clear()
                await _wait(self._room, 0.2)
                continue
            try:
                leases = await self._lease(free)
            except MoeraError as error:
                log.warning("cannot lease: %s", error)
                await asyncio.sleep(1.0)
                continue
            for lease in leases:
                if self.draining:
                    await self._save(_ref(lease), None, release=True)
                else:
                    self._start(lease)

    async def _lease(self, count: int) -> list[cache_pb2.SampleLease]:
        request_id = uuid.uuid4().hex
        while True:
            asking = asyncio.create_task(self._ask_for_leases(request_id, count))
            updated = asyncio.create_task(self._weights.updated())
            await asyncio.wait([asking, updated], return_when=asyncio.FIRST_COMPLETED)
            updated.cancel()
            if asking.done():
                return asking.result()
            # Newer weights may sample what older ones may not any more. The request keeps its id:
            # should it have been granted just now, the repeat is answered with the same leases.
            asking.cancel()
            await asyncio.wait([asking])

    async def _ask_for_leases(self, request_id: str, count: int) -> list[cache_pb2.SampleLease]:
        assert self._weights.serving is not None
        request = cache_pb2.LeaseRequest(
            request_id=request_id,
            server_id=self._section.server_id,
            max_samples=min(count, 1024),
            ttl_ms=int(self._section.lease_ttl_s * 1e3),
            wait_ms=int(_LEASE_WAIT_S * 1e3),
            serving_version=self._weights.serving.proto(),
        )
        deadline_s = _LEASE_WAIT_S + _DEADLINE_S
        response = await rpc.call(
            self._cache.Lease, request, deadline_s=deadline_s, patience_s=_DEADLINE_S
        )
        return list(response.leases)

    def _start(self, lease: cache_pb2.SampleLease) -> None:
        ref = _ref(lease)
        try:
            progress = from_lease(lease, self._model)
        except MoeraError as error:
            log.warning("sample %s: its partial is unusable: %s", lease.sample_id, error)
            fresh = cache_pb2.SampleLease()
            fresh.CopyFrom(lease)
            fresh.ClearField("partial")
            progress = from_lease(fresh, self._model).pristine()
        episode = Episode(progress, lease.token, self._stage)
        task = asyncio.create_task(self._play(ref, episode), name=lease.sample_id)
        # Two leases of one sample meet here when the first one was lost unnoticed.
        old = self._runs.get(lease.sample_id)
        if old:
            old.task.cancel()
        self._runs[lease.sample_id] = _Running(ref, episode, task)
        _running.add(1)
        task.add_done_callback(lambda done: self._ended(lease.sample_id, done))

    def _ended(self, sample_id: str, task: asyncio.Task[None]) -> None:
        _running.add(-1)
        found = self._runs.get(sample_id)
        if found and found.task is task:
            self._forget(found.lease)
        if not task.cancelled() and task.exception():
            log.error("sample %s", sample_id, exc_info=task.exception())

    def _forget(self, lease: cache_pb2.LeaseRef) -> None:
        found = self._runs.get(lease.sample_id)
        if found and found.lease == lease:
            del self._runs[lease.sample_id]
            self._room.set()

    async def _play(self, lease: cache_pb2.LeaseRef, episode: Episode) -> None:
        progress = episode.progress
        attributes = {
            telemetry.GROUP_ID: progress.group.group_id,
            telemetry.SAMPLE_ID: progress.sample_id,
            "moera.env_id": progress.group.task.env_id,
            "moera.server_id": self._section.server_id,
        }
        with telemetry.span(telemetry.SAMPLE, attributes, parent=progress.traceparent):
            progress.traceparent = progress.traceparent or telemetry.traceparent()
            outcome = await self._outcome(lease, episode)
        _samples.add(1, outcome=outcome)
        log.debug("sample %s: %s", progress.sample_id, outcome)

    async def _outcome(self, lease: cache_pb2.LeaseRef, episode: Episode) -> str:
        try:
            try:
                trajectory = await episode.play()
                await self._commit(lease, trajectory)
                outcome = "committed"
            except SampleFailedError as error:
                await self._fail(lease, error)
                outcome = "failed"
            except GiveBackError as error:
                log.warning("sample %s given back: %s", lease.sample_id, error)
                await self._save(lease, episode, release=True)
                return "given_back"
            # The lease is answered for: its place is free, and nobody need renew it any more.
            self._forget(lease)
            await self._close(episode)
            return outcome
        except AbortedError:
            return "lost"
        except MoeraError as error:
            # The lease runs out and the sample is played again: nothing is lost but time.
            log.warning("sample %s could not be handed in: %s", lease.sample_id, error)
            return "not_handed_in"

    async def _commit(self, lease: cache_pb2.LeaseRef, trajectory: common_pb2.Trajectory) -> None:
        request = cache_pb2.CommitRequest(
            lease=lease, server_id=self._section.server_id, summary=wire.summarize(trajectory)
        )
        payload = wire.pack(trajectory)
        with telemetry.span(telemetry.COMMIT):
            if len(payload.data) > rpc.MAX_PAYLOAD_BYTES:
                request.trajectory_upload_id = await self._upload(payload)
            else:
                request.trajectory.CopyFrom(payload)
            await self._ask(self._cache.Commit, request)

    async def _fail(self, lease: cache_pb2.LeaseRef, error: SampleFailedError) -> None:
        log.warning("sample %s failed: %s", lease.sample_id, error)
        failure = common_pb2.Failure(
            kind=error.kind, message=str(error), origin=self._section.server_id
        )
        request = cache_pb2.FailRequest(
            lease=lease,
            server_id=self._section.server_id,
            failure=failure,
            retryable=error.retryable,
        )
        await self._ask(self._cache.Fail, request)

    async def _save(
        self, lease: cache_pb2.LeaseRef, episode: Episode | None, *, release: bool
    ) -> None:
        request = cache_pb2.SavePartialRequest(lease=lease, release=release)
        if episode is not None and episode.progress.recordings:
            parent = episode.progress.traceparent
            with telemetry.span(telemetry.PARTIAL, parent=parent):
                payload = episode.progress.partial()
                if len(payload.data) > rpc.MAX_PAYLOAD_BYTES:
                    request.partial_upload_id = await self._upload(payload)
                else:
                    request.partial.CopyFrom(payload)
                await self._ask(self._cache.SavePartial, request)
        else:
            await self._ask(self._cache.SavePartial, request)

    async def _upload(self, payload: common_pb2.Payload) -> str:
        upload_id = uuid.uuid4().hex
        data = payload.data
        header = common_pb2.Payload()
        header.CopyFrom(payload)
        header.data = b""

        async def pieces() -> AsyncIterator[cache_pb2.UploadPayloadRequest]:
            yield cache_pb2.UploadPayloadRequest(upload_id=upload_id, header=header)
            for index, start in enumerate(range(0, len(data), _UPLOAD_PIECE_BYTES), start=1):
                piece = data[start : start + _UPLOAD_PIECE_BYTES]
                yield cache_pb2.UploadPayloadRequest(upload_id=upload_id, index=index, data=piece)

        await self._ask(
            lambda _request, timeout: self._cache.UploadPayload(pieces(), timeout=timeout), None
        )
        return upload_id

    async def _ask(self, method: Any, request: Any) -> Any:
        patience_s = 6 * self._section.lease_ttl_s
        return await rpc.call(method, request, deadline_s=_DEADLINE_S, patience_s=patience_s)

    async def _close(self, episode: Episode) -> None:
        request = envs_pb2.CloseEpisodeRequest(episode_id=episode.progress.episode_id)
        try:
            address = episode.address
            await self._stage.environments.call(address, "CloseEpisode", request, 0.0)
        except MoeraError as error:
            # Its lease closes it later.
            log.debug("episode %s not closed: %s", episode.progress.episode_id, error)

    # -- heartbeat -------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._section.lease_ttl_s / 3)
            try:
                await self._renew_leases()
                await self._save_partials()
            except MoeraError as error:
                log.warning("cannot renew leases: %s", error)
            await self._renew_episodes()

    async def _renew_leases(self) -> None:
        if not self._runs:
            return
        request = cache_pb2.RenewRequest(
            server_id=self._section.server_id,
            leases=[run.lease for run in self._runs.values()],
            ttl_ms=int(self._section.lease_ttl_s * 1e3),
        )
        response = await rpc.call(self._cache.Renew, request, deadline_s=_DEADLINE_S)
        for lost in response.lost:
            run = self._runs.get(lost.sample_id)
            if run and run.lease.token == lost.token and not run.task.done():
                log.warning("lost the lease of sample %s", lost.sample_id)
                run.task.cancel()

    async def _save_partials(self) -> None:
        every = self._section.partial_tokens
        for run in list(self._runs.values()) if every else ():
            tokens = sum(len(each.token_ids) for each in run.episode.progress.recordings)
            if tokens - run.saved_tokens >= every and not (run.task.done() or run.episode.ended):
                run.saved_tokens = tokens
                await self._save(run.lease, run.episode, release=False)

    async def _renew_episodes(self) -> None:
        episodes: dict[str, list[str]] = {}
        for run in self._runs.values():
            if run.episode.opened:
                address = run.episode.address
                episodes.setdefault(address, []).append(run.episode.progress.episode_id)
        for address, ids in episodes.items():
            request = envs_pb2.RenewEpisodesRequest(episode_ids=ids)
            try:
                await self._stage.environments.call(address, "RenewEpisodes", request, 0.0)
            except MoeraError as error:
                log.debug("episodes at %s not renewed: %s", address, error)

    # -- drain -----------------------------------------------------------------------------------

    async def drain(self, deadline_s: float) -> tuple[int, int]:
        """Store every running sample and give up its lease, within the deadline.

        What is not stored in time is played again once its lease has run out.

        Returns:
            Samples stored with a partial, and samples given back without one.
        """
        if self.draining:
            await self.drained.wait()
            return 0, 0
        self.draining = True
        ends = [asyncio.create_task(self._hand_over(run)) for run in self._runs.values()]
        _, late = await asyncio.wait(
            [*ends, asyncio.create_task(self._leasing_ended.wait())], timeout=deadline_s
        )
        for task in late:
            task.cancel()
        kinds = [task.result() for task in ends if task.done() and not task.cancelled()]
        self._runs.clear()
        self.drained.set()
        partials, released = kinds.count("partial"), kinds.count("released")
        log.info("drained: %d partials stored, %d samples released", partials, released)
        return partials, released

    async def _hand_over(self, run: _Running) -> str:
        if run.episode.ended:
            # Its trajectory is on its way to the cache: there is nothing to go on with.
            await asyncio.wait([run.task])
            return "ended"
        run.task.cancel()
        await asyncio.wait([run.task])
        try:
            await self._save(run.lease, run.episode, release=True)
        except MoeraError as error:
            # Its lease runs out, and it is played again.
            log.warning("sample %s not given up: %s", run.lease.sample_id, error)
            return "late"
        return "partial" if run.episode.progress.recordings else "released"


def _ref(lease: cache_pb2.SampleLease) -> cache_pb2.LeaseRef:
    return cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)
