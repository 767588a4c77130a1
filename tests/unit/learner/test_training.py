"""Batches, gradients and checkpoints of the learner on a tiny model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from moera.errors import DataLossError
from moera.models.logprobs import chosen_logprobs
from moera.models.policy import load_policy
from moera.objects import FileStore
from moera.wire import Version, sequence_from_proto, tensor_from_proto
from services.learner import algorithms, checkpoint
from services.learner.batches import Batch, Staleness, make_batch
from services.learner.config import LearnerSection
from services.learner.policy import Policy
from tests import tiny
from tests.unit.learner.made import BASE, batch_of

REWARDS = {"a": [1.0, 0.0, 0.0, 1.0], "b": [0.5, 0.25, 1.0], "c": [1.0, 1.0]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"))


def batch(section: LearnerSection, step: int = 1, version: Version = BASE) -> Batch:
    groups, trajectories = batch_of(REWARDS, version)
    return make_batch(groups, trajectories, section, Staleness(step, 1, {1: 0}))


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in policy.model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
@pytest.mark.parametrize("max_tokens", [1, 40, 10_000])
def test_the_gradient_is_that_of_each_sequence_alone_however_it_is_packed(
    model, max_tokens, aggregation
):
    section = LearnerSection(
        max_tokens_per_microbatch=max_tokens, algorithm={"aggregation": aggregation}
    )
    policy = Policy(str(model), "float32", section, seed=0)
    made = batch(section)
    policy.forward_backward(made)
    packed = gradients(policy)

    groups, trajectories = batch_of(REWARDS)
    loss = torch.zeros(())
    tokens = sum(len(t.sequences[0].loss_mask.data.strip(b"\0")) for t in trajectories.values())
    alone = load_policy(str(model), "float32")
    for group in groups:
        members = [trajectories[sample.sample_id] for sample in group.samples]
        rewards = torch.tensor([member.reward for member in members], dtype=torch.float64)
        spread = rewards.std(correction=0)
        for member in members:
            sequence = sequence_from_proto(member.sequences[0])
            ids = torch.tensor(sequence.token_ids.tolist())[None]
            logprobs = alone(input_ids=ids, use_cache=False).logits[0, :-1].log_softmax(-1)
            chosen = logprobs.gather(1, ids[0, 1:, None])[:, 0]
            mask = torch.tensor(sequence.loss_mask[1:])
            ratio = (chosen - torch.tensor(sequence.logprobs[1:]))[mask].exp()
            advantage = float((member.reward - rewards.mean()) / (spread + 1e-6))
            losses = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
            weight = 1 / tokens if aggregation == "token" else 1 / (9 * len(losses))
            loss = loss + losses.sum() * weight
    loss.backward()
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(packed[name], parameter.grad, atol=2e-6, rtol=1e-4)


def test_a_packed_row_leaks_with_a_cache_and_not_without(model):
    policy = load_policy(str(model), "float32")
    first, second = [5, 6, 7, 8, 9, 10], [20, 21, 22, 23]
    ids = torch.tensor([first + second])
    positions = torch.tensor([[*range(6), *range(4)]])
    chosen = torch.tensor([[False] * 7 + [True] * 3])
    packed, _ = chosen_logprobs(policy, ids, positions, chosen, 1.0)
    alone, entropy = chosen_logprobs(
        policy,
        torch.tensor([second]),
        torch.arange(4)[None],
        torch.tensor([[False, True, True, True]]),
        1.0,
    )
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)
    hidden = policy.model(input_ids=ids, position_ids=positions).last_hidden_state
    leaked = policy.lm_head(hidden)[0, 6:9].log_softmax(-1)
    leaked = leaked.gather(1, ids[0, 7:10, None])[:, 0]
    assert (leaked - alone).abs().max() > 0.01
    logits = policy(input_ids=torch.tensor([second]), use_cache=False).logits[0, :-1]
    torch.testing.assert_close(
        entropy, torch.distributions.Categorical(logits=logits).entropy(), atol=1e-5, rtol=1e-5
    )


def test_metrics_say_what_was_trained(model):
    section = LearnerSection()
    made = batch(section)
    assert made.metrics["num_samples"] == 9
    assert made.metrics["zero_variance_groups"] == 1
    assert made.metrics["reward_mean"] == pytest.approx((2 + 1.75 + 2) / 9)
    assert made.metrics["staleness_max"] == 1
    policy = Policy(str(model), "float32", section, seed=0)
    metrics = policy.forward_backward(made)
    assert metrics["ratio_mean"] > 0
    assert metrics["kl"] >= 0
    load = np.array(policy.expert_load())
    np.testing.assert_allclose(load.sum(axis=1), 1.0)


def test_tokens_past_the_bound_are_masked_where_that_is_asked_for():
    section = LearnerSection(on_stale="mask_tokens", max_staleness=1)
    fresh, stale = batch(section, step=2), batch(section, step=3)
    assert fresh.metrics["num_policy_tokens"] > 0
    assert stale.metrics["num_policy_tokens"] == 0
    assert stale.microbatches == []


def test_staleness_of_a_dead_lineage_counts_from_the_lowest_later_restore():
    versions = np.array([[1, 15], [2, 11], [3, 13], [0, 0]])
    staleness = Staleness(step=15, epoch=3, restores={1: 0, 2: 10, 3: 12})
    assert staleness.of(versions).tolist() == [14 - 10, 14 - 11, 14 - 13, 14]
    assert staleness.is_current(np.array([[3, 14], [3, 13], [2, 14]])).tolist() == [
        True,
        False,
        False,
    ]


def test_a_gradient_that_is_not_finite_changes_nothing(model):
    section = LearnerSection()
    policy = Policy(str(model), "float32", section, seed=0)
    before = policy.weights()
    policy.forward_backward(batch(section))
    next(policy.model.parameters()).grad[0, 0] = float("nan")
    metrics, finite = policy.update(1)
    assert not finite
    assert "grad_norm" not in metrics
    for name, array in policy.weights().items():
        np.testing.assert_array_equal(array, before[name])


def test_warm_up_reaches_the_rate(model):
    section = LearnerSection(optimizer={"lr": 1e-3, "warmup_steps": 4})
    policy = Policy(str(model), "float32", section, seed=0)
    rates = []
    for step in (1, 2, 4, 9):
        policy.forward_backward(batch(section))
        rates.append(policy.update(step)[0]["lr"])
    assert rates == pytest.approx([2.5e-4, 5e-4, 1e-3, 1e-3])


def trained(policy: Policy, section: LearnerSection, steps: range) -> Policy:
    for step in steps:
        policy.forward_backward(batch(section, step, Version(1, step - 1)))
        policy.update(step)
    return policy


def save(policy: Policy, model: Path, objects: FileStore, step: int, scratch: Path) -> None:
    files = checkpoint.capture(policy, model, scratch)
    checkpoint.write(objects, files, checkpoint.State(step, 1, {1: 0}), keep=2)


def test_a_restored_learner_goes_on_bit_for_bit(model, tmp_path):
    section, objects = LearnerSection(), FileStore(tmp_path / "objects")
    policy = trained(Policy(str(model), "float32", section, seed=0), section, range(1, 3))
    save(policy, model, objects, 2, tmp_path / "scratch")
    straight = trained(policy, section, range(3, 5)).weights()
    state = checkpoint.read_latest(objects, tmp_path / "restored")
    assert state == checkpoint.State(2, 1, {1: 0})
    again = Policy(str(tmp_path / "restored" / "model"), "float32", section, seed=9)
    checkpoint.restore_optimizer(again, tmp_path / "restored")
    for name, array in trained(again, section, range(3, 5)).weights().items():
        np.testing.assert_array_equal(array, straight[name])


def test_old_checkpoints_go_and_an_unfinished_one_never_counts(model, tmp_path):
    section, objects = LearnerSection(), FileStore(tmp_path / "objects")
    policy = Policy(str(model), "float32", section, seed=0)
    for step in (1, 2, 3):
        save(policy, model, objects, step, tmp_path / "scratch")
    assert checkpoint.steps(objects) == [2, 3]
    objects.put("checkpoints/00000004/optimizer.safetensors", b"half")
    assert checkpoint.read_latest(objects, tmp_path / "a").step == 3
    damaged = objects.get("checkpoints/00000003/optimizer.safetensors")[:-1] + b"?"
    objects.put("checkpoints/00000003/optimizer.safetensors", damaged)
    with pytest.raises(DataLossError, match="is damaged"):
        checkpoint.read_latest(objects, tmp_path / "b")


def test_the_probe_is_what_the_published_weights_give(model):
    policy = Policy(str(model), "bfloat16", LearnerSection(), seed=0)
    probe = policy.probe()
    rounded = load_policy(str(model), "float32")
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
        ids = torch.tensor([list(probe.token_ids)])
        logprobs = rounded(input_ids=ids, use_cache=False).logits[0, :-1].log_softmax(-1)
        expected = logprobs.gather(1, ids[0, 1:, None])[:, 0]
    np.testing.assert_allclose(tensor_from_proto(probe.logprobs)[1:], expected, atol=1e-5)
    assert {array.dtype for array in policy.weights().values()} == {np.dtype("uint16")}


def test_token_weights_of_a_batch_sum_to_one():
    section = LearnerSection(max_tokens_per_microbatch=30)
    made = batch(section)
    assert len(made.microbatches) > 1
    total = sum(float(each.weights.sum()) for each in made.microbatches)
    assert total == pytest.approx(1.0)
    counts = [int(each.chosen.sum()) for each in made.microbatches]
    assert sum(counts) == made.metrics["num_policy_tokens"]
    assert sum(algorithms.token_weights([3, 0, 2], "token")) == pytest.approx(2 / 5)
