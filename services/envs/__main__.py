"""Serve the built-in environments: `python -m services.envs --config run.toml`."""

import asyncio
import sys

from moera import config, rpc, telemetry
from moera.env.entry import load
from moera.env.episodes import Episodes
from moera.env.servicer import EnvServicer
from moera.errors import MoeraError
from moera.v1 import envs_pb2_grpc
from services.envs.config import EnvsConfig

_STOP_S = 2.0


async def serve(run: EnvsConfig) -> None:
    """Serve until SIGTERM."""
    stopped = rpc.stop_signal()
    section = run.envs
    factories = {
        environment.id: load(environment.entry, environment.params)
        for environment in run.environment
        if environment.entry
    }
    episodes = Episodes(
        factories,
        max_episodes=section.max_episodes,
        lease_s=section.lease_s,
        call_deadline_s=section.call_deadline_s,
    )
    server = rpc.RpcServer(section.listen)
    servicer = EnvServicer(episodes, section.advertise)
    envs_pb2_grpc.add_EnvServiceServicer_to_server(servicer, server.grpc)
    await server.start(("moera.v1.EnvService",))
    await server.set_serving(True)
    await stopped.wait()
    await server.stop(_STOP_S)


def main() -> int:
    """Parse, serve, and say in one line what went wrong."""
    try:
        run = config.load(EnvsConfig, sys.argv[1:], "services.envs")
        telemetry.setup("envs", run.run, run.telemetry)
        asyncio.run(serve(run))
    except MoeraError as error:
        print(f"services.envs: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
