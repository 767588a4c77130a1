"""The bridge between asyncio and the engine's thread, with an engine that does as it is told."""

import asyncio
import contextlib

import pytest

from moera.errors import InternalError, InvalidArgumentError
from moera.v1 import common_pb2
from moera.wire import Version
from services.rollout.engine import Engine, Output, Request
from services.rollout.engine_loop import EngineLoop


class Scripted:
    """Says 0, 1, 2, ... to every request, up to its budget; breaks when told to."""

    def __init__(self) -> None:
        self.requests: dict[str, tuple[Request, int]] = {}
        self.breaks = False

    @property
    def busy(self) -> bool:
        return bool(self.requests)

    def add(self, request: Request) -> None:
        if not request.prompt:
            raise InvalidArgumentError("an empty prompt")
        self.requests[request.request_id] = (request, 0)

    def abort(self, request_id: str) -> None:
        self.requests.pop(request_id, None)

    def step(self) -> list[Output]:
        if self.breaks:
            raise RuntimeError("out of memory")
        outputs = []
        for request_id, (request, said) in list(self.requests.items()):
            last = said + 1 == request.max_new_tokens
            reason = common_pb2.FINISH_REASON_LENGTH if last else None
            outputs.append(Output(request_id, said, 0.0, Version(1, 0), None, reason))
            self.requests[request_id] = (request, said + 1)
            if last:
                self.abort(request_id)
        return outputs


def request(name: str, tokens: int, prompt: list[int] | None = None) -> Request:
    filled = [1] if prompt is None else prompt
    return Request(name, filled, common_pb2.SamplingParams(), tokens)


@pytest.fixture
async def scripted():
    engine = Scripted()
    loop = EngineLoop(engine)  # type: ignore[arg-type]
    yield engine, loop
    await loop.stop()


async def test_requests_run_side_by_side_and_each_gets_its_own_tokens(scripted) -> None:
    _, loop = scripted

    async def collect(name: str, tokens: int) -> list[int]:
        return [output.token_id async for output in loop.generate(request(name, tokens))]

    found = await asyncio.gather(*(collect(f"r{n}", n) for n in range(1, 6)))
    assert found == [list(range(n)) for n in range(1, 6)]
    assert (loop.sampled_tokens, loop.num_sequences) == (15, 0)


async def test_leaving_early_aborts_the_request(scripted) -> None:
    engine, loop = scripted
    async with contextlib.aclosing(loop.generate(request("a", 10_000_000))) as outputs:
        async for output in outputs:
            if output.token_id == 3:
                break
    await loop.run(lambda _: None)  # runs behind the abort
    assert not engine.busy
    assert [out.token_id async for out in loop.generate(request("a", 2))] == [0, 1]


async def test_a_refused_request_and_a_taken_id_say_so(scripted) -> None:
    _, loop = scripted
    with pytest.raises(InvalidArgumentError, match="an empty prompt"):
        await anext(loop.generate(request("a", 1, prompt=[])))
    running = loop.generate(request("b", 10_000_000))
    await anext(running)
    with pytest.raises(InvalidArgumentError, match="'b' is taken"):
        await anext(loop.generate(request("b", 1)))
    await running.aclose()


async def test_an_engine_that_breaks_fails_its_requests_and_serves_the_next_ones(scripted) -> None:
    engine, loop = scripted
    running = loop.generate(request("a", 10_000_000))
    await anext(running)
    engine.breaks = True
    with pytest.raises(InternalError, match="RuntimeError: out of memory"):
        async for _ in running:
            pass
    engine.breaks = False
    assert [out.token_id async for out in loop.generate(request("b", 2))] == [0, 1]


async def test_a_job_runs_between_two_steps_and_hands_its_error_back(scripted) -> None:
    engine, loop = scripted
    assert await loop.run(lambda given: given is engine) is True

    def broken(_: Engine) -> None:
        raise ValueError("no such tensor")

    with pytest.raises(ValueError, match="no such tensor"):
        await loop.run(broken)
