"""Random histories of the experience store over a real Redis, checked against a model.

The model knows which samples were acknowledged as committed, which batches were handed out and
what is retired; after every move the accounting identity must hold.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moera.errors import (
    AbortedError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from moera.objects import FileStore
from moera.v1 import cache_pb2, common_pb2
from moera.weights.encoder import ShardEncoder
from moera.weights.manifest import target_digest
from moera.wire import Version, pack
from services.cache import connection
from services.cache.config import CacheSection
from services.cache.experience import ExperienceStore
from services.cache.versions import VersionStore
from tests.faults import Fault, FaultProxy

_runs = itertools.count()
GROUPS_PER_STEP, GROUP_SIZE = 2, 2


class Histories(RuleBasedStateMachine):
    """Moves of a learner and of rollout servers, some of them late or repeated."""

    redis_url: str
    folder: Path

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.run_id = f"machine-{os.getpid()}-{next(_runs)}"
        section = CacheSection(redis_url=self.redis_url, max_attempts=3)
        self.redis = connection.connect(section)
        self.ask(connection.check, self.redis, self.run_id, section)
        objects = FileStore(self.folder / self.run_id)
        self.store = ExperienceStore(self.redis, self.run_id, objects, section)
        self.versions = VersionStore(self.redis, self.run_id, objects, section)
        self.groups = 0
        self.leases: list[cache_pb2.SampleLease] = []
        self.committed: set[str] = set()
        self.batches: dict[int, bytes] = {}
        self.retired = 0
        self.restart(st_step=0)

    def do(self, moving: Any) -> Any:
        return self.loop.run_until_complete(moving)

    def ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call the store as a client would: again, if Redis was away."""
        while True:
            try:
                return self.do(method(*arguments))
            except UnavailableError:
                continue

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.do(self.redis.aclose())
            self.loop.close()

    # -- the learner -----------------------------------------------------------------------------

    def restart(self, st_step: int) -> None:
        budget = cache_pb2.StalenessBudget(groups_per_step=GROUPS_PER_STEP, max_staleness=1)
        request = cache_pb2.OpenLineageRequest(
            request_id=f"start-{next(_runs)}",
            run_id=self.run_id,
            restored_step=st_step,
            budget=budget,
        )
        self.fence = self.ask(self.store.open_lineage, request).fence
        self.step = st_step
        self.publish()

    def publish(self) -> None:
        version = Version(self.fence.epoch, self.step)
        shard = ShardEncoder().encode(version, {"w": np.full(2, self.step, "<f4")}, anchor=True)
        for digest, data in shard.chunks.items():
            self.ask(self.versions.put_chunk, cache_pb2.Chunk(digest=digest, data=data), False)
        stage = cache_pb2.StageShardRequest(
            fence=self.fence, version=version.proto(), world_size=1, slices=shard.slices
        )
        self.ask(self.versions.stage, stage)
        header = cache_pb2.ManifestHeader(
            version=version.proto(), world_size=1, target_digest=target_digest(shard.slices)
        )
        self.ask(self.versions.publish, self.fence, header)

    @rule(back=st.integers(0, 3))
    def learner_dies_and_restores(self, back: int) -> None:
        old = self.fence
        self.restart(max(self.retired, self.step - back))
        with pytest.raises(AbortedError):
            self.ask(self.store.commit_step, old, self.step)

    @rule(count=st.integers(1, 3))
    def enqueue(self, count: int) -> None:
        groups = [
            common_pb2.Group(
                group_id=f"g{self.groups + number}",
                task=common_pb2.Task(env_id="e", task_id="t"),
                num_samples=GROUP_SIZE,
                purpose=common_pb2.PURPOSE_TRAIN,
            )
            for number in range(count)
        ]
        accepted = self.ask(self.store.enqueue, self.fence, groups).accepted_group_ids
        assert list(accepted) == [group.group_id for group in groups[: len(accepted)]]
        self.groups += len(accepted)

    @rule()
    def take_a_batch(self) -> None:
        step = self.step + 1
        request = cache_pb2.TakeBatchRequest(fence=self.fence, step=step)
        batch = self.ask(self.store.take_batch, request)
        if not batch.assigned:
            assert step not in self.batches
            return
        data = batch.SerializeToString(deterministic=True)
        assert self.batches.setdefault(step, data) == data
        assert len(batch.groups) == GROUPS_PER_STEP
        for group in batch.groups:
            assert len(group.samples) >= 2
            for sample in group.samples:
                assert sample.sample_id in self.committed
                assert sample.staleness <= 1
                self.ask(self.store.payload, sample.sample_id)
        self.step = step
        self.publish()

    @precondition(lambda self: self.step > self.retired)
    @rule(repeat=st.booleans())
    def checkpoint(self, repeat: bool) -> None:
        for _ in range(1 + repeat):
            self.ask(self.store.commit_step, self.fence, self.step)
        self.retired = self.step

    @precondition(lambda self: self.retired > 0)
    @rule()
    def a_restore_below_the_committed_step_is_refused(self) -> None:
        request = cache_pb2.OpenLineageRequest(
            request_id=f"low-{next(_runs)}",
            run_id=self.run_id,
            restored_step=self.retired - 1,
            budget=cache_pb2.StalenessBudget(groups_per_step=GROUPS_PER_STEP),
        )
        with pytest.raises(FailedPreconditionError):
            self.ask(self.store.open_lineage, request)

    # -- rollout servers -------------------------------------------------------------------------

    @rule(count=st.integers(1, 6), ttl_ms=st.sampled_from([1, 60_000]))
    def lease(self, count: int, ttl_ms: int) -> None:
        request = cache_pb2.LeaseRequest(
            request_id=f"lease-{next(_runs)}",
            server_id="r",
            max_samples=count,
            ttl_ms=ttl_ms,
            serving_version=Version(self.fence.epoch, self.step).proto(),
        )
        granted = self.ask(self.store.lease, request)
        for lease in granted:
            assert lease.sample_id not in self.committed
            assert all(
                lease.token > old.token for old in self.leases if old.sample_id == lease.sample_id
            )
        self.leases += granted
        if ttl_ms == 1:
            self.do(asyncio.sleep(0.003))

    @rule(count=st.integers(1, 8))
    def play(self, count: int) -> None:
        """What rollout servers mostly do; without it hardly a history would train anything."""
        self.enqueue(2)
        first = len(self.leases)
        self.lease(count, 60_000)
        for lease in self.leases[first:]:
            self.hand_in(lease, repeat=False)

    @precondition(lambda self: bool(self.leases))
    @rule(place=st.integers(0, 99), repeat=st.booleans())
    def commit(self, place: int, repeat: bool) -> None:
        self.hand_in(self.leases[place % len(self.leases)], repeat)

    def hand_in(self, lease: cache_pb2.SampleLease, repeat: bool) -> None:
        trajectory = common_pb2.Trajectory(sample_id=lease.sample_id, reward=1.0)
        version = Version(self.fence.epoch, self.step).proto()
        request = cache_pb2.CommitRequest(
            lease=cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token),
            server_id="r",
            summary=cache_pb2.SampleSummary(
                oldest_version=version, newest_version=version, reward=1.0
            ),
            trajectory=pack(trajectory),
        )
        for _ in range(1 + repeat):
            try:
                outcome = self.ask(self.store.commit, request)
            except AbortedError:  # the lease was lost to another one
                assert lease.sample_id not in self.committed
                return
            if outcome == cache_pb2.COMMIT_OUTCOME_COMMITTED:
                assert lease.sample_id not in self.committed
                self.committed.add(lease.sample_id)
            elif self.has_payload(lease.sample_id):
                # The reply to the commit that won was lost, and the client's own retry was told
                # that the sample is committed: acknowledged all the same.
                self.committed.add(lease.sample_id)

    def has_payload(self, sample_id: str) -> bool:
        try:
            self.ask(self.store.payload, sample_id)
        except NotFoundError:
            return False
        return True

    @precondition(lambda self: bool(self.leases))
    @rule(place=st.integers(0, 99), retryable=st.booleans(), server=st.sampled_from("abc"))
    def fail(self, place: int, retryable: bool, server: str) -> None:
        lease = self.leases[place % len(self.leases)]
        request = cache_pb2.FailRequest(
            lease=cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token),
            server_id=server,
            failure=common_pb2.Failure(kind=common_pb2.FAILURE_KIND_ENVIRONMENT, message="x"),
            retryable=retryable,
        )
        try:
            self.ask(self.store.fail, request)
        except AbortedError:
            return

    @precondition(lambda self: bool(self.leases))
    @rule(place=st.integers(0, 99), release=st.booleans())
    def save_a_partial(self, place: int, release: bool) -> None:
        lease = self.leases[place % len(self.leases)]
        request = cache_pb2.SavePartialRequest(
            lease=cache_pb2.LeaseRef(sample_id=lease.sample_id, token=lease.token),
            partial=pack(cache_pb2.Partial(next_step=2)),
            release=release,
        )
        try:
            self.ask(self.store.save_partial, request)
        except AbortedError:
            return

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def accounting_balances(self) -> None:
        if not hasattr(self, "fence"):
            return
        stats = self.ask(self.store.stats)
        counts = {
            field.name: getattr(stats.counts, field.name)
            for field in cache_pb2.SampleCounts.DESCRIPTOR.fields
        }
        assert counts.pop("enqueued") == self.groups * GROUP_SIZE == sum(counts.values()), counts
        kept = sum(counts[name] for name in ("committed", "ready", "assigned", "trained"))
        gone = sum(counts[name] for name in ("evicted", "dropped"))
        assert kept + gone == len(self.committed)
        assert stats.outstanding_groups <= 2 * GROUPS_PER_STEP
        trained = [
            sample.sample_id
            for data in self.batches.values()
            for group in cache_pb2.TakeBatchResponse.FromString(data).groups
            for sample in group.samples
        ]
        assert len(trained) == len(set(trained)) == counts["assigned"] + counts["trained"]


class FaultyHistories(Histories):
    """The same moves, with requests and replies lost, repeated and delayed on the way to Redis."""

    proxy: FaultProxy

    @rule(
        faults=st.lists(
            st.sampled_from(["cut", "drop", "duplicate", "delay"]), min_size=1, max_size=3
        )
    )
    def the_network_gets_worse(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.proxy.arm(fault)

    def teardown(self) -> None:
        self.proxy.disarm()
        super().teardown()


def run_machine(kind: type[Histories], examples: int, **attributes: Any) -> None:
    run_state_machine_as_test(
        type("Machine", (kind,), attributes),
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(180)
def test_any_history_balances_and_trains_every_sample_at_most_once(
    redis_url: str, tmp_path: Path
) -> None:
    run_machine(Histories, 60, redis_url=redis_url, folder=tmp_path)


@pytest.mark.timeout(180)
def test_a_bad_network_changes_nothing_of_that(redis_url: str, tmp_path: Path) -> None:
    proxy = FaultProxy(urlsplit(redis_url).port or 0)
    try:
        run_machine(FaultyHistories, 25, redis_url=proxy.url, folder=tmp_path, proxy=proxy)
        assert proxy.struck > 30
    finally:
        proxy.stop()
