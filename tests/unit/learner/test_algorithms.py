import math

import pytest
import torch

from services.learner.algorithms import (
    advantages,
    clipped_policy_loss,
    kl_estimate,
    token_weights,
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Rewards 1, 0, 0, 1: mean 1/2, population standard deviation 1/2.
        ("grpo", [1.0, -1.0, -1.0, 1.0]),
        ("dr_grpo", [0.5, -0.5, -0.5, 0.5]),
        # The others' means are 1/3 for a 1 and 2/3 for a 0.
        ("rloo", [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
    ],
)
def test_advantages_are_the_hand_computed_ones(kind: str, expected: list[float]) -> None:
    assert advantages([1.0, 0.0, 0.0, 1.0], kind) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_equal_rewards_teach_nothing(kind: str) -> None:
    assert advantages([0.7, 0.7, 0.7], kind) == pytest.approx([0, 0, 0], abs=1e-9)


def test_a_single_reward_and_an_unknown_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        advantages([1.0], "grpo")
    with pytest.raises(ValueError, match="unknown advantage"):
        advantages([1.0, 0.0], "ppo")


def test_the_clip_takes_the_gradient_only_where_it_would_go_too_far() -> None:
    # Ratios 2, 2, 0.5, 0.5 with clip [0.8, 1.3].
    logprobs = torch.tensor([[2.0, 2.0, 0.5, 0.5]]).log().requires_grad_()
    advantage = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    loss, binds = clipped_policy_loss(logprobs, torch.zeros(1, 4), advantage, 0.2, 0.3)
    assert loss[0].tolist() == pytest.approx([-1.3, 2.0, -0.5, 0.8])
    assert binds[0].tolist() == [True, False, False, True]
    loss.sum().backward()
    assert logprobs.grad is not None
    # d(-ratio * A) / d(logprob) = -ratio * A where the clip does not bind.
    assert logprobs.grad[0].tolist() == pytest.approx([0.0, 2.0, -0.5, 0.0])


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    logprobs = torch.tensor([[-1.2, -0.3]]).requires_grad_()
    advantage = torch.tensor([[0.5, -2.0]])
    loss, _ = clipped_policy_loss(logprobs, logprobs.detach(), advantage, 0.2, 0.2)
    loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0].tolist() == pytest.approx([-0.5, 2.0])


def test_weights_make_a_mean_over_tokens_or_over_sequences() -> None:
    assert token_weights([3, 0, 1], "token") == pytest.approx([1 / 4, 0, 1 / 4])
    assert token_weights([3, 0, 1], "sequence") == pytest.approx([1 / 6, 0, 1 / 2])
    with pytest.raises(ValueError, match="unknown aggregation"):
        token_weights([1], "batch")


def test_the_kl_estimate_is_hand_computed_and_never_negative() -> None:
    # reference / policy = 2: 2 - 1 - ln 2; the same: 0; 1/2: 1/2 - 1 + ln 2.
    policy = torch.zeros(3)
    reference = torch.tensor([2.0, 1.0, 0.5]).log()
    expected = [1 - math.log(2), 0.0, -0.5 + math.log(2)]
    assert kl_estimate(policy, reference).tolist() == pytest.approx(expected, abs=1e-6)
