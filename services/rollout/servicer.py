"""RolloutService: proto to domain and back."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable

import grpc

from moera.errors import InvalidArgumentError, UnavailableError
from moera.v1 import common_pb2, rollout_pb2, rollout_pb2_grpc
from moera.wire import tensor_to_proto
from services.rollout.engine import Request
from services.rollout.episode import Stage
from services.rollout.weights import WeightFollower
from services.rollout.worker import Worker

Context = grpc.aio.ServicerContext
_REPLACEMENT = "\ufffd"


class RolloutServicer(rollout_pb2_grpc.RolloutServiceServicer):
    """moera.v1.RolloutService. `stop` ends the server after a drain."""

    def __init__(
        self, stage: Stage, weights: WeightFollower, worker: Worker, stop: Callable[[], None]
    ) -> None:
        self._stage = stage
        self._weights = weights
        self._worker = worker
        self._stop = stop

    def _require_weights(self) -> None:
        if self._weights.serving is None:
            raise UnavailableError("no weights yet: the learner has not published a version")

    async def Generate(
        self, request: rollout_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[rollout_pb2.GenerateResponse]:
        """Sample a continuation token by token."""
        self._require_weights()
        chat = self._stage.chat
        prompt = self._prompt(request)
        room = self._stage.max_positions - len(prompt)
        wanted = request.sampling.max_new_tokens or room
        if room <= 0:
            raise InvalidArgumentError(f"a prompt of {len(prompt)} tokens leaves no room")
        engine_request = Request(
            uuid.uuid4().hex,
            prompt,
            request.sampling,
            min(wanted, room),
            sampling_seed=request.seed,
            stop_token_ids=chat.stop_token_ids | frozenset(request.sampling.stop_token_ids),
        )
        sampled: list[int] = []
        shown = 0
        async with contextlib.aclosing(self._stage.engine.generate(engine_request)) as outputs:
            async for output in outputs:
                sampled.append(output.token_id)
                text = chat.text(sampled)
                # Half of a multi-byte character is held back until the rest of it is there.
                if text.endswith(_REPLACEMENT) and output.finish_reason is None:
                    text = text[:shown]
                yield rollout_pb2.GenerateResponse(
                    token_ids=[output.token_id],
                    logprobs=[output.logprob],
                    text=text[shown:],
                    version=output.version.proto(),
                    finish_reason=output.finish_reason or common_pb2.FINISH_REASON_UNSPECIFIED,
                )
                shown = len(text)

    def _prompt(self, request: rollout_pb2.GenerateRequest) -> list[int]:
        kind = request.WhichOneof("prompt")
        if kind == "conversation":
            return self._stage.chat.prompt(
                list(request.conversation.messages), list(request.conversation.tools)
            )
        if kind == "text":
            return self._stage.chat.encode(request.text)
        if kind == "tokens":
            return list(request.tokens.token_ids)
        raise InvalidArgumentError("a generation has a prompt: conversation, text or tokens")

    async def Score(self, request: rollout_pb2.ScoreRequest, context: Context):
        """Return logprobs of given tokens."""
        self._require_weights()
        tokens, temperature = list(request.token_ids), request.temperature
        if len(tokens) > self._stage.max_positions:
            raise InvalidArgumentError(
                f"{len(tokens)} tokens are more than the model's {self._stage.max_positions}"
            )
        version = self._weights.serving
        assert version is not None
        logprobs = await self._stage.engine.run(lambda engine: engine.score(tokens, temperature))
        return rollout_pb2.ScoreResponse(
            logprobs=tensor_to_proto(logprobs), version=version.proto()
        )

    async def GetRolloutStatus(
        self, request: rollout_pb2.GetRolloutStatusRequest, context: Context
    ):
        """Say what the server is doing."""
        engine, weights, worker = self._stage.engine, self._weights, self._worker
        reason = "draining" if worker.draining else weights.reason
        response = rollout_pb2.GetRolloutStatusResponse(
            server_id=self._stage.section.server_id,
            running_samples=worker.num_running,
            engine_sequences=engine.num_sequences,
            sampled_tokens=engine.sampled_tokens,
            tokens_per_second=engine.tokens_per_second(),
            ready=not reason,
            draining=worker.draining,
            reason=reason,
            engine=self._stage.section.engine,
        )
        if weights.serving:
            response.version.CopyFrom(weights.serving.proto())
        if weights.newest:
            response.newest_version.CopyFrom(weights.newest.proto())
        return response

    async def Drain(self, request: rollout_pb2.DrainRequest, context: Context):
        """Store what is running and end the server."""
        deadline_s = request.deadline_ms / 1e3 or self._stage.section.drain_s
        partials, released = await self._worker.drain(deadline_s)
        self._stop()
        return rollout_pb2.DrainResponse(partials_saved=partials, samples_released=released)
