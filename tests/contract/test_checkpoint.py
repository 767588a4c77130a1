import numpy as np
import pytest

from moera import errors
from moera.v1 import cache_pb2
from moera.weights.encoder import ShardEncoder
from moera.weights.manifest import digest
from moera.weights.publish import alias_header, publish, publish_header
from moera.weights.reader import WeightReader
from moera.wire import Version
from tests.contract.conftest import Cache, ask


def tensors(seed: int) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(seed)
    return {
        "w": noise.integers(0, 2**16, (64, 128), dtype=np.uint16),
        "scale": noise.standard_normal(()).astype(np.float32),
        "large": noise.standard_normal((1200, 1200)).astype(np.float32),  # several chunks
    }


async def send(cache: Cache, encoder: ShardEncoder, version: Version, values, **options) -> None:
    shard = encoder.encode(version, values, anchor=options.get("anchor", False))
    header = cache_pb2.ManifestHeader(version=version.proto())
    await publish(cache.checkpoint, cache.fence, header, shard, durable=True, patience_s=0)


def assert_same(got, expected) -> None:
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)


async def test_a_cold_reader_gets_an_anchor_and_the_deltas_after_it(cache: Cache) -> None:
    encoder = ShardEncoder(bfloat16=True)
    values = tensors(0)
    await send(cache, encoder, Version(1, 0), values)
    for step in (1, 2):
        values = {name: array.copy() for name, array in values.items()}
        values["w"][step] += 3
        await send(cache, encoder, Version(1, step), values)
    reader = WeightReader(cache.checkpoint)
    snapshot = await reader.pull()
    assert (snapshot.version, snapshot.header.chain_length) == (Version(1, 2), 2)
    assert_same(snapshot.tensors, values)


async def test_an_alias_has_the_weights_of_its_target(cache: Cache) -> None:
    values = tensors(1)
    await send(cache, ShardEncoder(), Version(1, 0), values)
    await cache.open(restored=0)
    header = alias_header(Version(2, 0), Version(1, 0))
    await publish_header(cache.checkpoint, cache.fence, header, patience_s=0)
    snapshot = await WeightReader(cache.checkpoint).pull()
    assert (snapshot.version, snapshot.source) == (Version(2, 0), Version(1, 0))
    assert_same(snapshot.tensors, values)


async def test_a_version_is_invisible_until_all_of_it_is_there(cache: Cache) -> None:
    shard = ShardEncoder().encode(Version(1, 0), tensors(2), anchor=True)
    stage = cache_pb2.StageShardRequest(
        fence=cache.fence, version=Version(1, 0).proto(), world_size=1, slices=shard.slices
    )
    with pytest.raises(errors.FailedPreconditionError, match="chunks of this shard"):
        await ask(cache.checkpoint.StageShard, stage)
    header = cache_pb2.ManifestHeader(version=Version(1, 0).proto(), world_size=1)
    with pytest.raises(errors.FailedPreconditionError, match="0 of 1 shards"):
        await publish_header(cache.checkpoint, cache.fence, header, patience_s=0)
    with pytest.raises(errors.NotFoundError, match="no weight version"):
        await WeightReader(cache.checkpoint).pull()


async def test_a_dead_lineage_cannot_publish_and_versions_only_rise(cache: Cache) -> None:
    encoder = ShardEncoder()
    await send(cache, encoder, Version(1, 1), tensors(3))
    with pytest.raises(errors.AbortedError, match="not newer"):
        await send(cache, encoder, Version(1, 0), tensors(4))
    old = cache.fence
    await cache.open(restored=0)
    cache.fence = old
    with pytest.raises(errors.AbortedError, match="newer learner"):
        await send(cache, encoder, Version(1, 2), tensors(5))


async def test_republishing_the_same_is_fine_and_other_weights_are_refused(cache: Cache) -> None:
    await send(cache, ShardEncoder(), Version(1, 0), tensors(6))
    await send(cache, ShardEncoder(), Version(1, 0), tensors(6))
    with pytest.raises((errors.AlreadyExistsError, errors.FailedPreconditionError)):
        await send(cache, ShardEncoder(), Version(1, 0), tensors(7))


async def test_anchors_retire_versions_before_the_previous_anchor(cache: Cache) -> None:
    encoder = ShardEncoder()
    for step in range(4):
        await send(cache, encoder, Version(1, step), tensors(10 + step), anchor=True)
    reader = WeightReader(cache.checkpoint)
    for step, there in ((0, False), (1, False), (2, True), (3, True)):
        if there:
            assert_same((await reader.pull(Version(1, step))).tensors, tensors(10 + step))
        else:
            with pytest.raises(errors.NotFoundError):
                await reader.pull(Version(1, step))


async def test_a_damaged_chunk_is_refused(cache: Cache) -> None:
    async def chunks():
        chunk = cache_pb2.Chunk(digest=digest(b"right"), data=b"wrong")
        yield cache_pb2.PutChunksRequest(chunk=chunk)

    def put(_request, timeout):
        return cache.checkpoint.PutChunks(chunks(), timeout=timeout)

    with pytest.raises(errors.DataLossError, match="does not match its digest"):
        await ask(put, None)
