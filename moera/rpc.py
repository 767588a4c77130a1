"""gRPC in one place: servers, channels, deadlines, retries, and errors as status codes.

- Every call carries a deadline. `call` sets it, and retries only what is safe to retry: all
  moera mutations are idempotent by an id in the request.
- Domain code raises `moera.errors`; `ErrorInterceptor` turns them into status codes and
  `error_from_rpc` turns them back, so no servicer has a try/except. Long messages are cut.
- Health says SERVING only after `RpcServer.set_serving(True)`; under the name `LIVE` it says so
  from the start, so that a server that is not ready yet is not taken for a dead one.
"""

import asyncio
import functools
import logging
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status
from opentelemetry.instrumentation.grpc import aio_client_interceptors, aio_server_interceptor

from moera import errors

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * 2**20
"""Largest message either side accepts; larger things are streamed in chunks."""

MAX_PAYLOAD_BYTES = 4 * 2**20
"""Largest payload inside a message; larger ones are uploaded in chunks."""

LIVE = "moera.live"
"""Health name for liveness: SERVING from start to stop, whatever readiness ("") says."""

_MAX_ERROR_BYTES = 1_500
# An error travels in HTTP/2 trailers, percent-encoded and once more in the status detail. Past
# 8 KiB of trailers the client sees another error instead; the server's log has the whole text.

_STATUS: list[tuple[type[errors.MoeraError], grpc.StatusCode]] = [
    (errors.InvalidArgumentError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.NotFoundError, grpc.StatusCode.NOT_FOUND),
    (errors.AlreadyExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (errors.FailedPreconditionError, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.AbortedError, grpc.StatusCode.ABORTED),
    (errors.ResourceExhaustedError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (errors.DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.DataLossError, grpc.StatusCode.DATA_LOSS),
    (errors.UnimplementedError, grpc.StatusCode.UNIMPLEMENTED),
    (errors.InternalError, grpc.StatusCode.INTERNAL),
]

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A restarted peer must be found again within a second, not after the two-minute default.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A name may stand for several replicas (a headless Service): spread calls over all of them,
    # and look the name up again soon when one is gone; the default is every 30 s.
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]

_SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Without this two servers may share one port and each get half of the calls.
    ("grpc.so_reuseport", 0),
]


def status_code(error: errors.MoeraError) -> grpc.StatusCode:
    """Return the status code that carries this error."""
    for kind, code in _STATUS:
        if isinstance(error, kind):
            return code
    return grpc.StatusCode.INTERNAL


def error_from_rpc(error: grpc.aio.AioRpcError) -> errors.MoeraError:
    """Return the typed error that a failed call carries; the method name is in the message."""
    details = error.details() or error.code().name
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in details:  # gRPC's own refusal: sending it again cannot help
            return errors.InvalidArgumentError(details)
        return errors.ResourceExhaustedError(details, _retry_delay_s(error))
    for kind, code in _STATUS:
        if code is error.code():
            return kind(details)
    if error.code() is grpc.StatusCode.CANCELLED:
        return errors.UnavailableError(f"call cancelled: {details}")
    return errors.InternalError(f"{error.code().name}: {details}")


def _retry_delay_s(error: grpc.aio.AioRpcError) -> float:
    # rpc_status reads only the two accessors below, which aio errors have under other types.
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    for detail in status.details if status else ():
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.ToTimedelta().total_seconds()
    return 1.0


async def _abort(context: grpc.aio.ServicerContext, error: errors.MoeraError) -> None:
    message = str(error)
    if len(message.encode()) > _MAX_ERROR_BYTES:
        message = message.encode()[:_MAX_ERROR_BYTES].decode(errors="ignore") + " ..."
    if isinstance(error, errors.ResourceExhaustedError):
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        info = any_pb2.Any()
        info.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status = status_pb2.Status(
            code=code_pb2.RESOURCE_EXHAUSTED, message=message, details=[info]
        )
        context.set_trailing_metadata(rpc_status.to_status(status).trailing_metadata)
    await context.abort(status_code(error), message)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns `MoeraError` into its status code and everything else into INTERNAL with a log."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of the called method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        if handler.response_streaming:
            inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
            wrapped = _guard_stream(inner, method)
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            inner = handler.stream_unary if handler.request_streaming else handler.unary_unary
            wrapped = _guard_unary(inner, method)
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        return make(wrapped, handler.request_deserializer, handler.response_serializer)


def _typed(error: Exception, method: str) -> errors.MoeraError:
    if isinstance(error, errors.MoeraError):
        return error
    log.exception("bug in %s", method)
    return errors.InternalError(f"{method}: {type(error).__name__}: {error}")


def _guard_unary(inner: Callable[..., Any], method: str) -> Callable[..., Any]:
    @functools.wraps(inner)
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await inner(request, context)
        except (grpc.aio.AbortError, asyncio.CancelledError):
            raise
        except Exception as error:
            await _abort(context, _typed(error, method))

    return guarded


def _guard_stream(inner: Callable[..., Any], method: str) -> Callable[..., Any]:
    @functools.wraps(inner)
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            async for response in inner(request, context):
                yield response
        except (grpc.aio.AbortError, asyncio.CancelledError):
            raise
        except Exception as error:
            await _abort(context, _typed(error, method))

    return guarded


class RpcServer:
    """An aio gRPC server with health, reflection, tracing and error mapping.

    Register servicers on `grpc`, then `start`. `address` is the bound "host:port".
    """

    def __init__(self, listen: str) -> None:
        self.listen = listen
        self.address = listen
        self.grpc = grpc.aio.server(
            interceptors=[aio_server_interceptor(), ErrorInterceptor()], options=_SERVER_OPTIONS
        )
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]

    async def start(self, service_names: Iterable[str]) -> None:
        """Bind and serve; health stays NOT_SERVING until `set_serving`.

        Args:
            service_names: full names such as "moera.v1.EnvService", for reflection.

        Raises:
            ConfigError: the address cannot be bound, for instance because the port is in use.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        names = (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self.grpc)
        try:
            port = self.grpc.add_insecure_port(self.listen)
        except RuntimeError as error:
            raise errors.ConfigError(
                f"cannot listen on {self.listen}: the port is in use or not allowed; "
                "stop the other process or choose another `listen` address"
            ) from error
        self.address = f"{self.listen.rsplit(':', 1)[0]}:{port}"
        await self._health.set(LIVE, health_pb2.HealthCheckResponse.SERVING)
        await self.set_serving(False)
        await self.grpc.start()

    async def set_serving(self, serving: bool) -> None:
        """Tell health probes whether to send traffic here."""
        state = health_pb2.HealthCheckResponse
        await self._health.set("", state.SERVING if serving else state.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones finish for `grace_s` seconds, then cut them."""
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(grace_s)


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets. Call once, inside the running loop."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def channel(address: str) -> grpc.aio.Channel:
    """Open a traced channel to "host:port" with moera's message limits and keepalive."""
    return grpc.aio.insecure_channel(
        address, options=_CHANNEL_OPTIONS, interceptors=aio_client_interceptors()
    )


async def call(
    method: Callable[..., Any], request: Any, *, deadline_s: float, patience_s: float = 0.0
) -> Any:
    """Make a unary call with a deadline, retrying while the server is away.

    UNAVAILABLE and RESOURCE_EXHAUSTED are retried with jittered backoff until `patience_s`
    seconds have passed since the first attempt; every other error is raised at once. A call
    that died with its server is retried too, which is safe because moera's mutations are
    idempotent.

    Raises:
        MoeraError: the typed error of the last attempt.
    """
    give_up_at = time.monotonic() + patience_s
    for attempt in range(1_000_000):
        try:
            return await method(request, timeout=deadline_s)
        except grpc.aio.AioRpcError as error:
            typed = error_from_rpc(error)
            pause_s = _pause_s(typed, attempt)
            if pause_s is None or time.monotonic() + pause_s > give_up_at:
                raise typed from error
            await asyncio.sleep(pause_s)
    raise AssertionError("unreachable")


def _pause_s(error: errors.MoeraError, attempt: int) -> float | None:
    jitter = random.uniform(0.5, 1.0)
    if isinstance(error, errors.ResourceExhaustedError):
        return error.retry_after_s * (1.0 + jitter)
    if isinstance(error, errors.UnavailableError):
        return min(2.0, 0.1 * 2 ** min(attempt, 6)) * jitter
    return None


async def stream(method: Callable[..., Any], request: Any, *, deadline_s: float) -> AsyncIterator:
    """Iterate over a server stream with a deadline; errors are typed, nothing is retried."""
    try:
        async for response in method(request, timeout=deadline_s):
            yield response
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error) from error
