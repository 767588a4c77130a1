"""`moera env serve package.module:Class`: one environment over gRPC."""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from moera import rpc
from moera.env.entry import load
from moera.env.episodes import Episodes
from moera.env.servicer import EnvServicer
from moera.errors import ConfigError
from moera.v1 import envs_pb2_grpc

_STOP_S = 2.0


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--param {text!r}: write name=value, with the value as JSON or text")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def serve_command(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: the entry, its parameters or the address are wrong.
    """
    parser = argparse.ArgumentParser(prog="moera env serve")
    parser.add_argument("entry", help="package.module:Class")
    parser.add_argument("--id", default="", help="environment id; default: the class name")
    parser.add_argument("--listen", default="127.0.0.1:7200", metavar="HOST:PORT")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--max-episodes", type=int, default=1024)
    parser.add_argument("--lease-s", type=float, default=120.0)
    parser.add_argument("--call-deadline-s", type=float, default=30.0)
    arguments = parser.parse_args(argv)
    factory = load(arguments.entry, dict(_parameter(text) for text in arguments.param))
    env_id = arguments.id or arguments.entry.rpartition(":")[2]
    episodes = Episodes(
        {env_id: factory},
        max_episodes=arguments.max_episodes,
        lease_s=arguments.lease_s,
        call_deadline_s=arguments.call_deadline_s,
    )

    def announce(address: str) -> None:
        print(f"environment {env_id!r} on {address}", flush=True)

    asyncio.run(serve_episodes(episodes, arguments.listen, started=announce))
    return 0


async def serve_episodes(
    episodes: Episodes,
    listen: str,
    *,
    advertise: str = "",
    started: Callable[[str], None] = lambda _address: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; `started` is called with the bound address.

    Raises:
        ConfigError: the address cannot be bound.
    """
    stopped = rpc.stop_signal()
    server = rpc.RpcServer(listen)
    servicer = EnvServicer(episodes, advertise)
    envs_pb2_grpc.add_EnvServiceServicer_to_server(servicer, server.grpc)
    await server.start(("moera.v1.EnvService",))
    await server.set_serving(True)
    started(server.address)
    await stopped.wait()
    await server.stop(_STOP_S)
