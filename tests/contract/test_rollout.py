"""Rollout servers against a real cache and real environments."""

from pathlib import Path

import numpy as np
import pytest

from moera import errors, rpc
from moera.v1 import cache_pb2, common_pb2, rollout_pb2
from moera.wire import Version, sequence_from_proto, tensor_from_proto, text_message
from services.envs.calculator import Calculator
from services.rollout.engine import Request
from tests import tiny
from tests.contract.conftest import ask
from tests.contract.rollout import (
    Server,
    env_server,
    group,
    publish_weights,
    ready,
    rollout_server,
    tensors,
    trajectories,
    until,
)

V0, V1 = Version(1, 0), Version(1, 1)
POLICY, PROMPT = common_pb2.SEGMENT_SOURCE_POLICY, common_pb2.SEGMENT_SOURCE_PROMPT


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return tensors(tiny.save(tmp_path_factory.mktemp("other"), seed=1))


def mid_turn(server: Server) -> bool:
    """Return whether some sample is in the middle of a turn."""
    return any(run.episode.progress.turn_tokens > 3 for run in server.worker._runs.values())


async def test_a_group_is_played_turn_by_turn_and_committed_with_what_trained_it(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs, rollout_server(model, cache, envs) as server:
        await cache.enqueue(group("g", "talk"))
        await until(lambda: ready(cache, 1))
        played = await trajectories(cache, ["g/0", "g/1"])
        for trajectory in played.values():
            (message,) = trajectory.sequences
            sequence = sequence_from_proto(message)
            sources = [segment.source for segment in sequence.segments]
            assert sources[:2] == [PROMPT, POLICY]
            assert sources.count(POLICY) == trajectory.num_turns == 3
            assert trajectory.finish_reason == common_pb2.FINISH_REASON_TERMINATED
            assert trajectory.reward == sum(
                len(part.text)
                for said in trajectory.transcript
                if said.role == common_pb2.ROLE_ASSISTANT
                for part in said.content
            )
            request = rollout_pb2.ScoreRequest(
                token_ids=sequence.token_ids.tolist(), temperature=1.0
            )
            scored = tensor_from_proto((await ask(server.stub.Score, request)).logprobs)
            mask = sequence.loss_mask
            np.testing.assert_allclose(sequence.logprobs[mask], scored[mask], atol=1e-4)
            assert {tuple(row) for row in sequence.version_steps()[mask]} == {V0}
        # Same task, same weights, other noise.
        first, second = (played[key].sequences[0].token_ids.data for key in ("g/0", "g/1"))
        assert first != second


async def test_the_tokens_of_a_conversation_are_what_the_template_renders(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs, rollout_server(model, cache, envs) as server:
        await cache.enqueue(group("g", "talk"))
        await until(lambda: ready(cache, 1))
        for trajectory in (await trajectories(cache, ["g/0", "g/1"])).values():
            sequence = sequence_from_proto(trajectory.sequences[0])
            chat = server.stage.chat
            rendered = chat.prompt(list(trajectory.transcript[:-1]), [])
            text = chat._tokenizer.decode(rendered)
            shown = chat._tokenizer.decode(sequence.token_ids.tolist())
            # The rendered conversation ends its last turn; the sampled one may have run out.
            assert text.startswith(shown.removesuffix("<|im_end|>"))


async def test_a_drained_sample_goes_on_at_its_token_as_if_it_had_never_moved(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs:
        async with rollout_server(model, cache, envs, server_id="first") as first:
            await cache.enqueue(group("g", "talk", tokens=120))
            await until(lambda: mid_turn(first))
            answer = await ask(first.stub.Drain, rollout_pb2.DrainRequest(deadline_ms=3000))
        assert answer.partials_saved == 2
        assert (await cache.stats()).partials == 2
        async with rollout_server(model, cache, envs, server_id="second") as second:
            await until(lambda: ready(cache, 1))
            moved = await trajectories(cache, ["g/0", "g/1"])
            assert {(each.num_resumes, each.num_restarts) for each in moved.values()} == {(1, 0)}
            for sample_id, trajectory in moved.items():
                sequence = sequence_from_proto(trajectory.sequences[0])
                turn = sequence.segments[1]
                request = Request(
                    f"again {sample_id}",
                    sequence.token_ids[: turn.start].tolist(),
                    trajectory.sampling,
                    120,
                    noise_key=sample_id,
                    sampling_seed=7,
                    stop_token_ids=second.stage.chat.stop_token_ids,
                )
                in_one_go = [out.token_id async for out in second.stage.engine.generate(request)]
                end = turn.start + turn.num_tokens
                assert in_one_go == sequence.token_ids[turn.start : end].tolist()


async def test_a_lost_episode_is_replayed_and_keeps_its_tokens(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs, rollout_server(model, cache, envs) as first:
        await cache.enqueue(group("g", "talk", tokens=40))
        await until(
            lambda: (
                all(run.episode.progress.next_step > 1 for run in first.worker._runs.values())
                and len(first.worker._runs) == 2
            )
        )
    # The environments are gone with their episodes; the same address serves new ones.
    async with env_server(envs), rollout_server(model, cache, envs, server_id="second"):
        await until(lambda: ready(cache, 1))
    for trajectory in (await trajectories(cache, ["g/0", "g/1"])).values():
        assert (trajectory.num_turns, trajectory.num_restarts) == (3, 0)
        assert trajectory.num_resumes == 1


async def test_what_environments_do_wrong_is_a_typed_failure_and_never_a_reward(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs, rollout_server(model, cache, envs):
        await cache.enqueue(group("a", "broken", "raises"), group("b", "broken", "unscored"))
        await cache.enqueue(group("c", "nowhere"), group("d", "talk", "long" * 200))

        async def failed() -> bool:
            return (await cache.stats()).counts.failed == 8

        await until(failed)
    stats = await cache.stats()
    # What may work next time is tried three times and then set aside.
    assert stats.failures == {"POISON": 2, "ENVIRONMENT": 4, "CONTEXT_OVERFLOW": 2}
    assert stats.ready_groups == 0


async def test_running_samples_go_on_under_new_weights_token_by_token_on_record(
    cache, model, other_weights
):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs, rollout_server(model, cache, envs) as server:
        await cache.enqueue(group("g", "talk", tokens=100))
        await until(lambda: mid_turn(server))
        await publish_weights(cache, V1, other_weights)
        await until(lambda: ready(cache, 1))
        assert server.weights.serving == V1
    spans = [
        span
        for trajectory in (await trajectories(cache, ["g/0", "g/1"])).values()
        for span in trajectory.sequences[0].version_spans
    ]
    assert {Version.of(span.version) for span in spans} == {V0, V1}


async def test_weights_whose_probe_disagrees_never_sample_and_the_old_ones_go_on(
    cache, model, other_weights
):
    values = tensors(model)
    async with env_server() as envs, rollout_server(model, cache, envs, works=False) as server:
        await publish_weights(cache, V0, values)
        await until(lambda: server.weights.ready)
        tokens = list(range(5, 25))
        request = rollout_pb2.ScoreRequest(token_ids=tokens)
        right = tensor_from_proto((await ask(server.stub.Score, request)).logprobs)
        await publish_weights(cache, V1, other_weights, probe=(tokens, right))
        await until(lambda: server.weights.newest == V1 and server.weights._tries[V1] == 3)
        scored = await ask(server.stub.Score, request)
        assert Version.of(scored.version) == V0
        np.testing.assert_allclose(tensor_from_proto(scored.logprobs), right, atol=1e-5)
        # A good one after it is taken at once.
        await publish_weights(cache, Version(1, 2), values, probe=(tokens, right))
        await until(lambda: server.weights.serving == Version(1, 2))


async def test_evaluation_samples_are_played_only_at_their_version(cache, model):
    async with env_server() as envs, rollout_server(model, cache, envs) as server:
        pinned = group(
            "e",
            "talk",
            purpose=common_pb2.PURPOSE_EVAL,
            eval_id="eval",
            num_samples=1,
            pinned_version=V1.proto(),
        )
        await publish_weights(cache, V0, tensors(model))
        await cache.enqueue(pinned)
        await until(lambda: server.weights.serving == V0)
        collect = cache_pb2.CollectEvalRequest(eval_id="eval", wait_ms=300)
        assert not (await ask(cache.experience.CollectEval, collect)).done
        await publish_weights(cache, V1, tensors(model))
        collect.wait_ms = 9000
        collected = await ask(cache.experience.CollectEval, collect)
        (sample,) = collected.samples
        assert Version.of(sample.summary.oldest_version) == V1


async def test_a_partial_of_another_model_restarts_pristine(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs:
        async with rollout_server(model, cache, envs) as first:
            await cache.enqueue(group("g", "talk", tokens=120))
            await until(lambda: mid_turn(first))
            first.worker._model.tokenizer_digest = "another"
            for run in first.worker._runs.values():
                run.episode.progress.model = first.worker._model
        async with rollout_server(model, cache, envs):
            await until(lambda: ready(cache, 1))
    for trajectory in (await trajectories(cache, ["g/0", "g/1"])).values():
        assert trajectory.num_restarts == 1
        assert trajectory.model.tokenizer_digest != "another"


async def test_an_environment_that_is_away_gives_samples_back_instead_of_failing_them(cache, model):
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs:
        pass
    options = {"environment_patience_s": 0.2}
    async with rollout_server(model, cache, envs, **options):
        await cache.enqueue(group("g", "talk"))

        async def leased() -> bool:
            return (await cache.stats()).counts.leased == 2

        await until(leased)
        async with env_server(envs):
            await until(lambda: ready(cache, 1))
    assert (await cache.stats()).counts.failed == 0


async def test_generate_streams_text_and_refuses_what_it_cannot_do(cache, model):
    async with env_server() as envs, rollout_server(model, cache, envs, works=False) as server:

        async def generate(request: rollout_pb2.GenerateRequest):
            pieces = rpc.stream(server.stub.Generate, request, deadline_s=10.0)
            return [piece async for piece in pieces]

        sampling = common_pb2.SamplingParams(temperature=1.0, max_new_tokens=20)
        request = rollout_pb2.GenerateRequest(sampling=sampling, seed=3, text="hello")
        with pytest.raises(errors.UnavailableError, match="no weights yet"):
            await generate(request)
        await publish_weights(cache, V0, tensors(model))
        await until(lambda: server.weights.ready)
        pieces = await generate(request)
        tokens = [token for piece in pieces for token in piece.token_ids]
        assert "".join(piece.text for piece in pieces) == server.stage.chat.text(tokens)
        assert pieces[-1].finish_reason in (
            common_pb2.FINISH_REASON_LENGTH,
            common_pb2.FINISH_REASON_STOP,
        )
        assert [piece.token_ids for piece in await generate(request)] == [
            piece.token_ids for piece in pieces
        ]
        chat = rollout_pb2.GenerateRequest(sampling=sampling)
        chat.conversation.messages.append(text_message(common_pb2.ROLE_USER, "hi"))
        assert await generate(chat)
        with pytest.raises(errors.InvalidArgumentError, match="has a prompt"):
            await generate(rollout_pb2.GenerateRequest(sampling=sampling))
        chat.conversation.messages[0].role = 77
        with pytest.raises(errors.InvalidArgumentError, match="unknown role number 77"):
            await generate(chat)
        bad = rollout_pb2.GenerateRequest(sampling=sampling)
        bad.tokens.token_ids.append(99_999)
        with pytest.raises(errors.InvalidArgumentError, match="token id is not in"):
            await generate(bad)
        long = rollout_pb2.ScoreRequest(token_ids=[1] * 600)
        with pytest.raises(errors.InvalidArgumentError, match="more than the model"):
            await ask(server.stub.Score, long)
        status = await ask(server.stub.GetRolloutStatus, rollout_pb2.GetRolloutStatusRequest())
        assert (status.ready, status.draining, Version.of(status.version)) == (True, False, V0)


async def test_a_tool_call_reaches_the_calculator_and_its_answer_the_policy(cache, model):
    """Random weights call no tools: the conversation is rendered from what one would have said."""
    await publish_weights(cache, V0, tensors(model))
    async with env_server() as envs, rollout_server(model, cache, envs, works=False) as server:
        chat = server.stage.chat
        said = '<tool_call>{"name": "calculator", "arguments": {"expression": "2 + 3"}}</tool_call>'
        message = chat.parse([*chat.encode(said), 2])
        (call,) = message.tool_calls
        assert (call.name, call.arguments_json) == ("calculator", '{"expression": "2 + 3"}')
        question = text_message(common_pb2.ROLE_USER, "What is 2 + 3?")
        answer = text_message(common_pb2.ROLE_TOOL, "5")
        answer.tool_call_id = call.id
        more = chat.continuation([question, message, answer], Calculator.tools, 1, last_token=2)
        assert more is not None
        assert chat._tokenizer.decode(more) == (
            "\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n"
        )
