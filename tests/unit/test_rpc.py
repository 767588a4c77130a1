"""Calls over a real socket: error mapping, retries, deadlines, streams, health, tracing."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from moera import errors, rpc
from moera.v1 import cache_pb2, cache_pb2_grpc, envs_pb2, envs_pb2_grpc, rollout_pb2
from moera.v1 import rollout_pb2_grpc as rollout_grpc
from tests.conftest import free_port

DESCRIBE = envs_pb2.DescribeRequest()
TYPED = [
    errors.InvalidArgumentError,
    errors.NotFoundError,
    errors.AlreadyExistsError,
    errors.FailedPreconditionError,
    errors.AbortedError,
    errors.ResourceExhaustedError,
    errors.UnavailableError,
    errors.DeadlineError,
    errors.DataLossError,
    errors.UnimplementedError,
    errors.InternalError,
]


class Scripted(
    envs_pb2_grpc.EnvServiceServicer,
    cache_pb2_grpc.CheckpointServiceServicer,
    rollout_grpc.RolloutServiceServicer,
):
    """Describe, PutChunks and Generate run what the test scripted."""

    def __init__(self, script: Callable[[int], Awaitable[Any]]) -> None:
        self.calls = 0
        self.called = asyncio.Event()
        self._script = script

    async def _next(self) -> Any:
        self.calls += 1
        self.called.set()
        return await self._script(self.calls)

    async def Describe(self, request: Any, context: Any) -> envs_pb2.DescribeResponse:
        return await self._next() or envs_pb2.DescribeResponse()

    async def PutChunks(self, request_iterator: Any, context: Any) -> cache_pb2.PutChunksResponse:
        async for _ in request_iterator:
            await self._next()
        return cache_pb2.PutChunksResponse()

    async def Generate(
        self, request: Any, context: Any
    ) -> AsyncIterator[rollout_pb2.GenerateResponse]:
        yield rollout_pb2.GenerateResponse(text="first")
        await self._next()
        yield rollout_pb2.GenerateResponse(text="second")


def raising(error: BaseException) -> Callable[[int], Awaitable[Any]]:
    async def script(call: int) -> Any:
        raise error

    return script


def failing_first(error: Exception, times: int = 1) -> Callable[[int], Awaitable[Any]]:
    async def script(call: int) -> Any:
        if call <= times:
            raise error

    return script


@contextlib.asynccontextmanager
async def served(
    script: Callable[[int], Awaitable[Any]], listen: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[Scripted, rpc.RpcServer]]:
    server, servicer = rpc.RpcServer(listen), Scripted(script)
    envs_pb2_grpc.add_EnvServiceServicer_to_server(servicer, server.grpc)
    cache_pb2_grpc.add_CheckpointServiceServicer_to_server(servicer, server.grpc)
    rollout_grpc.add_RolloutServiceServicer_to_server(servicer, server.grpc)
    await server.start(["moera.v1.EnvService"])
    try:
        yield servicer, server
    finally:
        await server.stop(0)


async def describe(address: str, deadline_s: float = 5.0, patience_s: float = 0.0) -> Any:
    async with rpc.channel(address) as channel:
        stub = envs_pb2_grpc.EnvServiceStub(channel)
        return await rpc.call(stub.Describe, DESCRIBE, deadline_s=deadline_s, patience_s=patience_s)


async def generate(address: str, deadline_s: float = 5.0) -> list[str]:
    async with rpc.channel(address) as channel:
        stub = rollout_grpc.RolloutServiceStub(channel)
        request = rollout_pb2.GenerateRequest()
        replies = rpc.stream(stub.Generate, request, deadline_s=deadline_s)
        return [reply.text async for reply in replies]


@pytest.mark.parametrize("kind", TYPED, ids=lambda kind: kind.__name__)
async def test_a_typed_error_arrives_as_itself_with_its_message(
    kind: type[errors.MoeraError],
) -> None:
    async with served(raising(kind("é is wrong;\nuse e"))) as (_, server):
        with pytest.raises(kind) as caught:
            await describe(server.address)
    assert type(caught.value) is kind
    assert str(caught.value) == "é is wrong;\nuse e"


async def test_a_subclass_arrives_as_the_nearest_error_on_the_wire() -> None:
    async with served(raising(errors.ConfigError("bad key"))) as (_, server):
        with pytest.raises(errors.InvalidArgumentError, match="bad key"):
            await describe(server.address)


async def test_a_bug_arrives_as_internal_with_method_and_type_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(raising(KeyError("lost"))) as (_, server):
        with pytest.raises(errors.InternalError, match=r"EnvService/Describe: KeyError: 'lost'"):
            await describe(server.address)
    assert "bug in /moera.v1.EnvService/Describe" in caplog.text


@pytest.mark.parametrize("kind", [errors.NotFoundError, errors.ResourceExhaustedError])
async def test_a_message_of_any_length_keeps_its_type(kind: type[errors.MoeraError]) -> None:
    async with served(raising(kind("start " + "é" * 100_000 + " end"))) as (_, server):
        with pytest.raises(kind, match="start") as caught:
            await describe(server.address)
    assert type(caught.value) is kind


async def test_errors_of_request_streams_arrive_typed() -> None:
    async def chunks() -> AsyncIterator[cache_pb2.PutChunksRequest]:
        yield cache_pb2.PutChunksRequest()

    script = raising(errors.DataLossError("torn"))
    async with served(script) as (_, server), rpc.channel(server.address) as channel:
        stub = cache_pb2_grpc.CheckpointServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.PutChunks(chunks(), timeout=5)
    assert isinstance(rpc.error_from_rpc(caught.value), errors.DataLossError)


async def test_a_stream_delivers_what_came_before_its_typed_error() -> None:
    script = raising(errors.NotFoundError("gone"))
    async with served(script) as (_, server), rpc.channel(server.address) as channel:
        stub = rollout_grpc.RolloutServiceStub(channel)
        replies = rpc.stream(stub.Generate, rollout_pb2.GenerateRequest(), deadline_s=5)
        assert (await anext(replies)).text == "first"
        with pytest.raises(errors.NotFoundError, match="gone"):
            await anext(replies)


async def test_a_stream_ends_when_its_server_is_done() -> None:
    async with served(failing_first(ValueError(), times=0)) as (_, server):
        assert await generate(server.address) == ["first", "second"]


async def test_a_stream_has_a_deadline() -> None:
    async with served(lambda call: asyncio.sleep(30)) as (_, server):
        with pytest.raises(errors.DeadlineError):
            await generate(server.address, deadline_s=0.2)


async def test_back_pressure_carries_its_delay() -> None:
    async with served(raising(errors.ResourceExhaustedError("full", 0.125))) as (_, server):
        with pytest.raises(errors.ResourceExhaustedError) as caught:
            await describe(server.address)
    assert caught.value.retry_after_s == 0.125


async def test_back_pressure_is_retried_no_sooner_than_asked() -> None:
    async with served(failing_first(errors.ResourceExhaustedError("full", 0.2))) as (log, server):
        started = time.monotonic()
        await describe(server.address, patience_s=5)
        assert log.calls == 2
        assert 0.2 <= time.monotonic() - started < 2


async def test_patience_ends_with_the_last_typed_error() -> None:
    async with served(raising(errors.ResourceExhaustedError("full", 0.05))) as (log, server):
        started = time.monotonic()
        with pytest.raises(errors.ResourceExhaustedError):
            await describe(server.address, patience_s=0.5)
        assert log.calls >= 3
        assert time.monotonic() - started < 1.5


async def test_without_patience_there_is_one_attempt() -> None:
    async with served(raising(errors.UnavailableError("starting"))) as (log, server):
        with pytest.raises(errors.UnavailableError):
            await describe(server.address)
        assert log.calls == 1


@pytest.mark.parametrize(
    "kind", [errors.InvalidArgumentError, errors.AbortedError, errors.InternalError]
)
async def test_what_cannot_get_better_is_not_retried(kind: type[errors.MoeraError]) -> None:
    async with served(raising(kind("no"))) as (log, server):
        with pytest.raises(kind):
            await describe(server.address, patience_s=5)
        assert log.calls == 1


async def test_a_call_waits_for_a_server_that_starts_later() -> None:
    listen = f"127.0.0.1:{free_port()}"
    waiting = asyncio.create_task(describe(listen, patience_s=20))
    await asyncio.sleep(0.7)
    assert not waiting.done()
    async with served(failing_first(ValueError(), times=0), listen):
        await asyncio.wait_for(waiting, 5)


async def test_a_call_survives_the_restart_of_its_server() -> None:
    listen = f"127.0.0.1:{free_port()}"
    async with contextlib.AsyncExitStack() as stack:
        first, _ = await stack.enter_async_context(served(lambda call: asyncio.sleep(30), listen))
        calling = asyncio.create_task(describe(listen, deadline_s=20, patience_s=20))
        await first.called.wait()
        await stack.aclose()
        async with served(failing_first(ValueError(), times=0), listen) as (second, _):
            await asyncio.wait_for(calling, 10)
            assert second.calls == 1


async def test_nobody_there_is_unavailable_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(errors.UnavailableError):
        await describe(f"127.0.0.1:{free_port()}")
    assert time.monotonic() - started < 2


async def test_a_deadline_passes_as_a_deadline_error_without_retry() -> None:
    async with served(lambda call: asyncio.sleep(30)) as (log, server):
        with pytest.raises(errors.DeadlineError):
            await describe(server.address, deadline_s=0.2, patience_s=5)
        assert log.calls == 1


async def test_a_message_over_the_limit_is_refused_and_not_retried() -> None:
    async def huge(call: int) -> envs_pb2.DescribeResponse:
        return envs_pb2.DescribeResponse(api_version="x" * (rpc.MAX_MESSAGE_BYTES + 1))

    async with served(huge) as (log, server):
        started = time.monotonic()
        with pytest.raises(errors.InvalidArgumentError, match="larger than max"):
            await describe(server.address, patience_s=20)
        assert time.monotonic() - started < 5
        assert log.calls == 1


async def test_an_unknown_method_is_unimplemented() -> None:
    async with served(raising(ValueError())) as (_, server), rpc.channel(server.address) as channel:
        absent = channel.unary_unary("/moera.v1.EnvService/Nope")
        with pytest.raises(errors.UnimplementedError):
            await rpc.call(absent, b"", deadline_s=5)


async def test_a_cancelled_caller_stays_cancelled() -> None:
    async with served(lambda call: asyncio.sleep(30)) as (log, server):
        calling = asyncio.create_task(describe(server.address, patience_s=20))
        await log.called.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_two_servers_cannot_share_a_port() -> None:
    async with served(raising(ValueError())) as (_, server):
        with pytest.raises(errors.ConfigError, match=r"cannot listen on .*in use"):
            async with served(raising(ValueError()), server.address):
                pass


async def test_a_listen_address_that_is_no_address_is_a_config_error() -> None:
    with pytest.raises(errors.ConfigError, match="cannot listen on"):
        await rpc.RpcServer("nowhere.invalid:port").start([])


async def test_health_is_not_serving_until_told() -> None:
    state = health_pb2.HealthCheckResponse
    async with served(raising(ValueError())) as (_, server), rpc.channel(server.address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        request = health_pb2.HealthCheckRequest()
        assert (await check(request, timeout=5)).status == state.NOT_SERVING
        await server.set_serving(True)
        assert (await check(request, timeout=5)).status == state.SERVING
        await server.set_serving(False)
        assert (await check(request, timeout=5)).status == state.NOT_SERVING


async def test_liveness_is_serving_before_readiness_is() -> None:
    state = health_pb2.HealthCheckResponse
    async with served(raising(ValueError())) as (_, server), rpc.channel(server.address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        live = health_pb2.HealthCheckRequest(service="moera.live")
        ready = health_pb2.HealthCheckRequest()
        assert (await check(live, timeout=5)).status == state.SERVING
        assert (await check(ready, timeout=5)).status == state.NOT_SERVING


async def test_calls_are_spread_over_all_addresses_of_a_name() -> None:
    async with (
        served(failing_first(ValueError(), times=0)) as (one, first),
        served(failing_first(ValueError(), times=0)) as (two, second),
        rpc.channel(f"ipv4:{first.address},{second.address}") as channel,
    ):
        stub = envs_pb2_grpc.EnvServiceStub(channel)
        give_up_at = time.monotonic() + 10
        while min(one.calls, two.calls) < 3 and time.monotonic() < give_up_at:
            await rpc.call(stub.Describe, DESCRIBE, deadline_s=5)
    assert one.calls > 2
    assert two.calls > 2


async def test_reflection_lists_the_services() -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with served(raising(ValueError())) as (_, server), rpc.channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        replies = stub.ServerReflectionInfo(iter([request]), timeout=5)
        names = [
            service.name
            async for reply in replies
            for service in reply.list_services_response.service
        ]
    assert {"moera.v1.EnvService", "grpc.health.v1.Health"} <= set(names)


async def test_stop_lets_running_calls_finish_within_the_grace() -> None:
    async with served(lambda call: asyncio.sleep(0.3)) as (log, server):
        calling = asyncio.create_task(describe(server.address))
        await log.called.wait()
        await server.stop(5)
        assert isinstance(await calling, envs_pb2.DescribeResponse)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_stop_signal_is_set_by_the_signal(number: signal.Signals) -> None:
    stopped = rpc.stop_signal()
    try:
        assert not stopped.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stopped.wait(), 5)
    finally:
        for handled in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(handled)
