from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from moera.errors import DataLossError, InvalidArgumentError
from moera.v1 import common_pb2
from moera.wire import Version
from services.rollout.config import RolloutSection
from services.rollout.engine import Output, Request, WeightUpdate
from services.rollout.native.engine import NativeEngine
from tests import tiny

PROMPTS = [[5, 6, 7, 8, 9, 10], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50], [9, 8, 7]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("tiny"))


def engine(folder: Path, **changes) -> NativeEngine:
    section = {"block_size": 4, "kv_cache_mib": 1, **changes}
    made = NativeEngine(str(folder), "float32", RolloutSection(**section))
    made.update_weights(WeightUpdate(Version(1, 0), weights(folder)))
    return made


def weights(folder: Path, scale: float = 1.0) -> dict[str, np.ndarray]:
    model = AutoModelForCausalLM.from_pretrained(folder)
    return {name: tensor.numpy() * scale for name, tensor in model.state_dict().items()}


def request(name: str, prompt: list[int], tokens: int = 12, temperature: float = 1.0) -> Request:
    sampling = common_pb2.SamplingParams(temperature=temperature)
    return Request(name, prompt, sampling, tokens, noise_key=name, sampling_seed=3)


def drain(engine: NativeEngine, *requests: Request) -> dict[str, list[Output]]:
    for each in requests:
        engine.add(each)
    outputs: dict[str, list[Output]] = {each.request_id: [] for each in requests}
    while engine.busy:
        for output in engine.step():
            outputs[output.request_id].append(output)
    return outputs


def tokens(outputs: list[Output]) -> list[int]:
    return [output.token_id for output in outputs]


def reference_logprobs(folder: Path, ids: list[int], scale: float = 1.0) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    return logits.log_softmax(-1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def test_greedy_tokens_are_those_of_transformers_generate(folder) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    names = [f"r{index}" for index in range(len(PROMPTS))]
    requests = [request(n, p, temperature=0.0) for n, p in zip(names, PROMPTS, strict=True)]
    outputs = drain(engine(folder), *requests)
    for name, prompt in zip(names, PROMPTS, strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None
        )
        assert tokens(outputs[name]) == expected[0, len(prompt) :].tolist()


def test_logprobs_are_those_of_a_full_forward_pass(folder) -> None:
    for name, outputs in drain(engine(folder), request("a", PROMPTS[1])).items():
        assert name == "a"
        ids = PROMPTS[1] + tokens(outputs)
        expected = reference_logprobs(folder, ids)[len(PROMPTS[1]) - 1 :]
        got = torch.tensor([output.logprob for output in outputs])
        assert torch.allclose(got, expected, atol=1e-4)


def test_a_sample_is_the_same_alone_and_among_others(folder) -> None:
    alone = drain(engine(folder), request("r1", PROMPTS[1]))["r1"]
    requests = [request(f"r{index}", prompt) for index, prompt in enumerate(PROMPTS)]
    crowd = drain(engine(folder), *requests)
    assert tokens(crowd["r1"]) == tokens(alone)
    assert tokens(crowd["r0"]) != tokens(crowd["r1"])


def test_samples_of_a_group_share_their_prompt_and_still_differ(folder) -> None:
    shared = engine(folder)
    outputs = drain(shared, *(request(f"g/{index}", PROMPTS[1]) for index in range(4)))
    # 11 prompt tokens in blocks of 4: two full blocks are found by each of the three followers.
    assert shared.stats().prefix_hit_tokens == 3 * 8
    assert len({tuple(tokens(each)) for each in outputs.values()}) > 1
    for index in range(4):
        alone = drain(engine(folder), request(f"g/{index}", PROMPTS[1]))
        assert tokens(alone[f"g/{index}"]) == tokens(outputs[f"g/{index}"])


def test_preemption_by_recompute_does_not_change_results(folder) -> None:
    requests = [request(f"r{index}", PROMPTS[1], tokens=40) for index in range(3)]
    roomy = drain(engine(folder), *requests)
    # Just above one sequence's 51 positions; three cannot run side by side to their ends.
    tight = engine(folder)
    held = [tight._pool.allocate() for _ in range(tight.stats().num_blocks - 20)]
    outputs = drain(tight, *requests)
    assert tight.stats().preemptions > 0
    assert tight.stats().free_blocks == 20
    assert held
    assert {name: tokens(each) for name, each in outputs.items()} == {
        name: tokens(each) for name, each in roomy.items()
    }


def test_all_blocks_come_back(folder) -> None:
    used = engine(folder)
    drain(used, *(request(f"r{index}", prompt) for index, prompt in enumerate(PROMPTS)))
    used.add(request("aborted", PROMPTS[0]))
    used.step()
    used.abort("aborted")
    assert not used.busy
    assert used.stats().free_blocks == used.stats().num_blocks


def updated_after_four_tokens(folder, **changes) -> tuple[list, list]:
    """Return what was sampled before and after new weights came between two steps."""
    updated = engine(folder, **changes)
    updated.add(request("a", PROMPTS[1]))
    before = [output for _ in range(4) for output in updated.step()]
    updated.update_weights(WeightUpdate(Version(1, 1), weights(folder, 0.5)))
    after = []
    while updated.busy:
        after += updated.step()
    return before, after


def test_an_update_between_steps_changes_version_and_distribution(folder) -> None:
    before, after = updated_after_four_tokens(folder)
    assert {output.version for output in before} == {Version(1, 0)}
    assert {output.version for output in after} == {Version(1, 1)}


def test_no_cached_prefix_survives_an_update(folder) -> None:
    updated = engine(folder)
    drain(updated, request("old", PROMPTS[1]))
    updated.update_weights(WeightUpdate(Version(1, 1), weights(folder, 0.5)))
    outputs = drain(updated, request("new", PROMPTS[1]))["new"]
    expected = reference_logprobs(folder, PROMPTS[1] + tokens(outputs), 0.5)
    got = torch.tensor([output.logprob for output in outputs])
    assert torch.allclose(got, expected[len(PROMPTS[1]) - 1 :], atol=1e-4)


def test_recompute_gives_running_samples_the_new_weights_from_their_first_token(folder) -> None:
    before, after = updated_after_four_tokens(folder, on_update="recompute")
    ids = PROMPTS[1] + tokens(before + after)
    expected = reference_logprobs(folder, ids, 0.5)[len(PROMPTS[1]) - 1 + len(before) :]
    got = torch.tensor([output.logprob for output in after])
    assert torch.allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("fault", ["missing", "unknown", "shape"])
def test_weights_that_do_not_fit_change_nothing(folder, fault) -> None:
    served = engine(folder)
    broken = weights(folder, 0.5)
    name = "model.layers.0.mlp.gate.weight"
    if fault == "missing":
        del broken[name]
    elif fault == "unknown":
        broken["nobody"] = broken[name]
    else:
        broken[name] = broken[name][:1]
    with pytest.raises(DataLossError):
        served.update_weights(WeightUpdate(Version(1, 1), broken))
    scored = served.score(PROMPTS[1], 1.0)
    assert np.allclose(scored[1:], reference_logprobs(folder, PROMPTS[1]), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": []}, "needs 1 to"),
        ({"prompt": [1] * 600}, "exceed the model's 512"),
        ({"prompt": [9999]}, "not in"),
    ],
)
def test_requests_that_can_never_run_are_refused(folder, change, message) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        engine(folder).add(request("bad", **change))


def test_recorded_routes_are_those_of_the_router(folder) -> None:
    recorded = engine(folder, record_routes=True)
    outputs = drain(recorded, request("a", PROMPTS[1], tokens=3))["a"]
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = PROMPTS[1] + tokens(outputs)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), output_router_logits=True).router_logits
    for offset, output in enumerate(outputs):
        position = len(PROMPTS[1]) - 1 + offset
        expected = [set(layer[position].topk(2).indices.tolist()) for layer in logits]
        assert output.routed_experts is not None
        assert [set(row.tolist()) for row in output.routed_experts] == expected
