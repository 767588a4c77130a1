"""Every family of the reasoning-gym package, through the adapter."""

import pytest
from reasoning_gym.factory import DATASETS

from moera.errors import ConfigError
from moera.v1 import common_pb2, envs_pb2
from services.envs.reasoning_gym import ReasoningGym

# Their entries hold no answer in words: many are right.
WITHOUT_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
OPTIONS = {"composite": {"datasets": [{"name": "chain_sum", "weight": 1, "config": {}}]}}


@pytest.mark.parametrize("family", sorted(DATASETS))
def test_a_family_poses_tasks_and_its_own_scorer_is_the_reward(family: str) -> None:
    environment = ReasoningGym(family, size=6, **OPTIONS.get(family, {}))
    by_split = [environment.tasks(split) for split in environment.splits()]
    task_ids = [task_id for ids in by_split for task_id in ids]
    assert 0 < len(task_ids) == len(set(task_ids)) <= 6
    question = environment.reset(common_pb2.Task(env_id=family, task_id=task_ids[0]))
    assert len(question) > 10
    answer = environment._entry["answer"]
    if family not in WITHOUT_ANSWER:
        right = environment.step(f"Let me see. Answer: {answer}", envs_pb2.Action())
        assert (right.reward, right.terminated) == (1.0, True)
    wrong = environment.step("I would rather not say", envs_pb2.Action())
    assert wrong.reward is not None
    # One scorer takes whatever does not say True for a False.
    assert 0 <= wrong.reward < 1 or family == "game_of_life_halting"


def test_an_answer_that_a_scorer_cannot_parse_is_wrong_and_counted() -> None:
    environment = ReasoningGym("prime_factorization", size=4)
    environment.reset(common_pb2.Task(env_id="p", task_id="0"))
    result = environment.step("Answer: no idea", envs_pb2.Action())
    assert (result.reward, result.metrics) == (0.0, {"unparsed": 1.0})


def test_a_composite_without_datasets_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="at least one dataset"):
        ReasoningGym("composite")
