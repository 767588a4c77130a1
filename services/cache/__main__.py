"""Serve the cache: `python -m services.cache --config run.toml`."""

import sys

from moera import rpc, service
from moera.errors import ConfigError
from moera.objects import open_store
from moera.v1 import cache_pb2_grpc
from services.cache import connection
from services.cache.config import CacheConfig
from services.cache.experience import ExperienceStore
from services.cache.servicer import CheckpointServicer, ExperienceServicer
from services.cache.versions import VersionStore

_STOP_S = 2.0


async def serve(run: CacheConfig) -> None:
    """Serve until SIGTERM."""
    stopped = rpc.stop_signal()
    section = run.cache
    if not run.run.id:
        raise ConfigError("run.id is empty: every service of a run carries the run's id")
    redis = connection.connect(section)
    await connection.check(redis, run.run.id, section)
    objects = open_store(run.storage_uri())
    server = rpc.RpcServer(section.listen)
    experience = ExperienceStore(redis, run.run.id, objects, section)
    versions = VersionStore(redis, run.run.id, objects, section)
    cache_pb2_grpc.add_ExperienceServiceServicer_to_server(
        ExperienceServicer(experience, section.poll_s), server.grpc
    )
    cache_pb2_grpc.add_CheckpointServiceServicer_to_server(
        CheckpointServicer(versions, section.poll_s), server.grpc
    )
    await server.start(("moera.v1.ExperienceService", "moera.v1.CheckpointService"))
    await server.set_serving(True)
    await stopped.wait()
    await server.stop(_STOP_S)
    await redis.aclose()


if __name__ == "__main__":
    sys.exit(service.main("cache", CacheConfig, serve))
