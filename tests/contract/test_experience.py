import asyncio

import pytest

from moera import errors, rpc
from moera.v1 import cache_pb2, common_pb2
from moera.wire import Version, pack, unpack
from services.cache.config import CacheSection
from tests.contract.conftest import BASE, Cache, ask, ref, train_group


async def test_samples_go_from_enqueued_to_trained_and_always_balance(cache: Cache) -> None:
    await cache.enqueue(train_group("a"), train_group("b"))
    assert (await cache.stats()).counts.pending == 4
    leases = await cache.lease()
    assert [lease.sample_id for lease in leases] == ["a/0", "a/1", "b/0", "b/1"]
    assert (await cache.stats()).counts.leased == 4
    for lease in leases[:3]:
        assert await cache.commit(lease) == cache_pb2.COMMIT_OUTCOME_COMMITTED
    counts = (await cache.stats()).counts
    assert (counts.ready, counts.committed, counts.leased) == (2, 1, 1)
    await cache.commit(leases[3])
    batch = await cache.take(1)
    assert [group.group_id for group in batch.groups] == ["a", "b"]
    assert (await cache.stats()).counts.assigned == 4
    assert await cache.commit_step(1) == 4
    assert (await cache.stats()).counts.trained == 4


async def test_every_mutation_may_be_repeated(cache: Cache) -> None:
    for _ in range(2):
        assert (await cache.enqueue(train_group("a"), train_group("b"))).accepted_group_ids == [
            "a",
            "b",
        ]
    first = await cache.lease(request_id="same")
    assert [ref(lease) for lease in await cache.lease(request_id="same")] == [
        ref(lease) for lease in first
    ]
    outcomes = [await cache.commit(first[0]) for _ in range(2)]
    assert outcomes == [cache_pb2.COMMIT_OUTCOME_COMMITTED, cache_pb2.COMMIT_OUTCOME_DUPLICATE]
    for lease in first[1:]:
        await cache.commit(lease)
    assert await cache.take(1) == await cache.take(1)
    assert [await cache.commit_step(1) for _ in range(2)] == [4, 4]
    assert await cache.commit(first[0]) == cache_pb2.COMMIT_OUTCOME_DUPLICATE
    assert (await cache.enqueue(train_group("a"))).accepted_group_ids == ["a"]
    stats = await cache.stats()
    assert (stats.counts.enqueued, stats.counts.trained, stats.duplicate_commits) == (4, 4, 2)


async def test_groups_past_the_staleness_budget_are_refused_until_weights_follow(cache) -> None:
    answer = await cache.enqueue(*(train_group(name) for name in "abcde"))
    assert (answer.accepted_group_ids, answer.free_groups) == (["a", "b", "c", "d"], 0)
    for lease in await cache.lease():
        await cache.commit(lease)
    assert (await cache.take(1)).assigned
    # What is sampled while step 1 trains comes from weights 0, and would be trained by step 3.
    assert (await cache.enqueue(train_group("e"))).accepted_group_ids == []
    await cache.publish(1)
    answer = await cache.enqueue(train_group("e"), train_group("f"), train_group("g"))
    assert answer.accepted_group_ids == ["e", "f"]


async def test_a_server_with_old_weights_gets_only_what_can_still_be_trained_in_time(cache) -> None:
    await cache.play(train_group("a"), train_group("b"))
    await cache.take(1)
    await cache.publish(1)
    await cache.enqueue(*(train_group(name) for name in "cdef"))
    # c and d are trained by step 2, from weights 0 one step behind; e and f by step 3.
    old = await cache.lease(version=BASE)
    assert [lease.sample_id for lease in old] == ["c/0", "c/1", "d/0", "d/1"]
    assert await cache.lease(version=BASE) == []
    new = await cache.lease(version=Version(1, 1))
    assert {lease.group.group_id for lease in new} == {"e", "f"}


async def test_a_lost_lease_goes_to_another_server_and_fences_the_zombie(cache: Cache) -> None:
    await cache.enqueue(train_group("a"))
    (lost, kept) = await cache.lease(ttl_ms=50)
    await ask(
        cache.experience.Renew,
        cache_pb2.RenewRequest(server_id="r0", leases=[ref(kept)], ttl_ms=60_000),
    )
    await asyncio.sleep(0.08)
    (again,) = await cache.lease(server_id="r1")
    assert (again.sample_id, again.token, again.attempt) == (lost.sample_id, lost.token + 1, 2)
    with pytest.raises(errors.AbortedError, match="was lost to lease"):
        await cache.commit(lost)
    renewed = await ask(
        cache.experience.Renew,
        cache_pb2.RenewRequest(server_id="r0", leases=[ref(lost), ref(kept)], ttl_ms=1000),
    )
    assert list(renewed.lost) == [ref(lost)]
    assert await cache.commit(again) == cache_pb2.COMMIT_OUTCOME_COMMITTED


async def test_a_late_commit_wins_while_nobody_else_has_leased_the_sample(cache: Cache) -> None:
    await cache.enqueue(train_group("a"))
    (late, _) = await cache.lease(ttl_ms=30)
    await asyncio.sleep(0.05)
    assert (await cache.stats()).counts.pending == 2
    assert await cache.commit(late) == cache_pb2.COMMIT_OUTCOME_COMMITTED
    assert [lease.sample_id for lease in await cache.lease()] == ["a/1"]


async def test_a_partial_is_handed_to_the_next_server_before_fresh_work(cache: Cache) -> None:
    await cache.enqueue(train_group("a"), train_group("b"))
    leases = await cache.lease()
    partial = cache_pb2.Partial(episode_id="e", next_step=2)
    for lease, payload in ((leases[0], None), (leases[3], pack(partial))):
        request = cache_pb2.SavePartialRequest(lease=ref(lease), partial=payload, release=True)
        await ask(cache.experience.SavePartial, request)
    assert (await cache.stats()).partials == 1
    (first, second) = await cache.lease(server_id="r1")
    assert (first.sample_id, second.sample_id) == ("b/1", "a/0")
    assert unpack(first.partial, cache_pb2.Partial) == partial
    assert not second.HasField("partial")


async def test_a_sample_that_fails_everywhere_is_set_aside_as_poison(cache: Cache) -> None:
    await cache.enqueue(train_group("a", 3))
    poisoned, *others = await cache.lease()
    for attempt in (1, 2, 3):
        answer = await cache.fail(poisoned, retryable=True)
        assert (answer.requeued, answer.attempts) == (attempt < 3, attempt)
        if answer.requeued:
            (poisoned,) = await cache.lease(server_id=f"r{attempt}")
    for lease in others:
        await cache.commit(lease)
    stats = await cache.stats()
    assert (stats.counts.failed, stats.counts.ready) == (1, 2)
    assert dict(stats.failures) == {"POISON": 1}


async def test_a_sample_that_failed_on_enough_servers_is_poison_before_its_attempts_end(
    cache: Cache,
) -> None:
    store = cache.store(CacheSection(max_attempts=8, poison_servers=2))
    await cache.enqueue(train_group("a", 2))
    lease, _ = await cache.lease()
    outcomes = []
    for server in ("r0", "r0", "r1"):
        failing = cache_pb2.FailRequest(
            lease=ref(lease),
            server_id=server,
            failure=common_pb2.Failure(kind=common_pb2.FAILURE_KIND_ENVIRONMENT, message="x"),
            retryable=True,
        )
        outcomes.append((await store.fail(failing)).requeued)
        if outcomes[-1]:
            (lease,) = await cache.lease()
    assert outcomes == [True, True, False]
    assert dict((await cache.stats()).failures) == {"POISON": 1}


async def test_a_group_with_fewer_than_two_trainable_samples_is_dropped(cache: Cache) -> None:
    await cache.enqueue(train_group("a"))
    first, second = await cache.lease()
    await cache.commit(first)
    await cache.fail(second)
    stats = await cache.stats()
    assert (stats.counts.dropped, stats.counts.failed, stats.outstanding_groups) == (1, 1, 0)


async def test_stale_samples_are_evicted_when_they_would_be_assigned(cache: Cache) -> None:
    await cache.play(train_group("a"), train_group("b"))
    assert (await cache.take(1)).assigned
    await cache.play(train_group("c"), train_group("d"))
    await cache.publish(1)
    await cache.take(2)
    await cache.publish(2)
    # Step 3 trains on weights of step 2: those of step 0 are two steps behind, one is allowed.
    await cache.play(train_group("old"), train_group("new-1"), version=Version(1, 0))
    assert not (await cache.take(3)).assigned
    stats = await cache.stats()
    assert (stats.counts.evicted, stats.outstanding_groups) == (4, 0)
    await cache.play(train_group("e"), train_group("f"), version=Version(1, 1))
    batch = await cache.take(3)
    assert {sample.staleness for group in batch.groups for sample in group.samples} == {1}


async def test_a_restarted_learner_gets_the_same_batch_and_its_old_self_is_fenced(cache) -> None:
    await cache.play(*(train_group(name) for name in "abcd"))
    before = [await cache.take(step) for step in (1, 2)]
    await cache.commit_step(1)
    old_fence = cache.fence
    opened = await cache.open(restored=1)
    assert (list(opened.assigned_steps), opened.committed_step, opened.enqueued_groups) == (
        [2],
        1,
        4,
    )
    assert await cache.take(2) == before[1]
    new_fence, cache.fence = cache.fence, old_fence
    with pytest.raises(errors.AbortedError, match="newer learner has taken over"):
        await cache.take(2)
    cache.fence = new_fence
    with pytest.raises(errors.FailedPreconditionError, match="step 1 is committed"):
        await cache.open(restored=0)


async def test_staleness_of_a_dead_lineage_counts_from_the_restored_step(cache: Cache) -> None:
    await cache.play(train_group("a"), train_group("b"))
    await cache.take(1)
    await cache.enqueue(train_group("c"), train_group("d"))
    leases = await cache.lease()
    await cache.open(restored=1)
    for lease in leases:
        await cache.commit(lease, version=Version(1, 7))
    batch = await cache.take(2)
    assert {sample.staleness for group in batch.groups for sample in group.samples} == {0}
    await cache.publish(2)
    await cache.play(train_group("e"), train_group("f"), version=Version(1, 9))
    batch = await cache.take(3)
    assert {sample.staleness for group in batch.groups for sample in group.samples} == {1}


async def test_evaluations_stay_outside_the_identity_and_pins_choose_the_server(cache) -> None:
    group = train_group("e", 1)
    group.purpose, group.eval_id = common_pb2.PURPOSE_EVAL, "start"
    group.pinned_version.CopyFrom(Version(1, 0).proto())
    await cache.enqueue(group)
    assert (await cache.stats()).counts.enqueued == 0
    assert await cache.lease(version=Version(1, 1)) == []
    (lease,) = await cache.lease(version=Version(1, 0))
    collect = cache_pb2.CollectEvalRequest(eval_id="start")
    assert not (await ask(cache.experience.CollectEval, collect)).done
    await cache.commit(lease, reward=0.5)
    found = await ask(cache.experience.CollectEval, collect)
    assert (found.done, found.samples[0].summary.reward) == (True, 0.5)
    await ask(cache.experience.ReleaseEval, cache_pb2.ReleaseEvalRequest(eval_id="start"))
    with pytest.raises(errors.NotFoundError):
        await ask(cache.experience.CollectEval, collect)


async def test_large_payloads_go_up_and_come_down_in_parts(cache: Cache) -> None:
    await cache.enqueue(train_group("a"))
    lease, _ = await cache.lease()
    data = bytes(range(256)) * 40_000  # 10 MB: past the payload limit
    whole = pack(common_pb2.Trajectory(sample_id="a/0"))
    whole.data, whole.compression = data, common_pb2.COMPRESSION_NONE
    whole.uncompressed_bytes = len(data)
    import xxhash

    whole.checksum = xxhash.xxh3_128_digest(data)

    async def chunks():
        header = common_pb2.Payload()
        header.CopyFrom(whole)
        header.data = b""
        yield cache_pb2.UploadPayloadRequest(upload_id="u", index=0, header=header)
        for index, start in enumerate(range(0, len(data), 2**20), 1):
            piece = data[start : start + 2**20]
            yield cache_pb2.UploadPayloadRequest(upload_id="u", index=index, data=piece)

    await cache.experience.UploadPayload(chunks(), timeout=20)
    summary = cache_pb2.SampleSummary(oldest_version=Version(1, 0).proto(), reward=1.0)
    request = cache_pb2.CommitRequest(
        lease=ref(lease), server_id="r0", summary=summary, trajectory_upload_id="u"
    )
    await ask(cache.experience.Commit, request)
    fetch = cache_pb2.FetchTrajectoriesRequest(sample_ids=["a/0"])
    parts = [
        part async for part in rpc.stream(cache.experience.FetchTrajectories, fetch, deadline_s=20)
    ]
    assert b"".join(part.trajectory.data for part in parts) == data
    assert [part.last for part in parts] == [False, False, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_id": "a b"}, "is not usable"),
        ({"num_samples": 1}, "at least 2 samples"),
        ({"num_samples": 5000}, "num_samples is 5000"),
        ({"purpose": 9}, "unknown purpose 9"),
        ({"task": common_pb2.Task()}, "no env_id or task_id"),
    ],
)
async def test_a_malformed_group_is_refused_with_its_reason(cache, change, message) -> None:
    group = train_group("a")
    for name, value in change.items():
        if name == "task":
            group.task.CopyFrom(value)
        else:
            setattr(group, name, value)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        await cache.enqueue(group)


async def test_a_damaged_trajectory_is_refused_and_the_lease_stays(cache: Cache) -> None:
    await cache.enqueue(train_group("a"))
    lease, _ = await cache.lease()
    payload = pack(common_pb2.Trajectory(sample_id="a/0"))
    payload.data += b"x"
    summary = cache_pb2.SampleSummary(reward=1.0)
    request = cache_pb2.CommitRequest(lease=ref(lease), summary=summary, trajectory=payload)
    with pytest.raises(errors.DataLossError):
        await ask(cache.experience.Commit, request)
    assert await cache.commit(lease) == cache_pb2.COMMIT_OUTCOME_COMMITTED


async def test_a_lease_waits_for_work(cache: Cache) -> None:
    waiting = asyncio.create_task(cache.lease(wait_ms=5000))
    await asyncio.sleep(0.1)
    await cache.enqueue(train_group("a"))
    assert len(await asyncio.wait_for(waiting, 2)) == 2
