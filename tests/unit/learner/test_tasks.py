from collections import Counter

from moera.config import EnvironmentSection
from moera.v1 import common_pb2
from services.learner.config import LearnerSection
from services.learner.tasks import TaskSource


def source(run_id: str = "run", seed: int = 0, weights: tuple[float, ...] = (1, 1)) -> TaskSource:
    environments = [
        EnvironmentSection(id=f"env{number}", entry="x:Y", weight=weight)
        for number, weight in enumerate(weights)
    ]
    tasks = {
        each.id: {
            split: [
                common_pb2.Task(env_id=each.id, task_id=f"{split}-{n}", split=split)
                for n in range(50)
            ]
            for split in ("train", "eval")
        }
        for each in environments
    }
    section = LearnerSection(evaluation={"num_tasks": 20})
    return TaskSource(run_id, seed, section, environments, tasks)


def test_a_draw_is_a_function_of_run_seed_and_index_alone():
    ahead = source()
    late = [ahead.group(index) for index in (70, 3, 120)]
    assert late == [source().group(index) for index in (70, 3, 120)]
    assert source(seed=1).group(3).task != late[1].task or source(seed=1).group(3) != late[1]
    assert source("other").group(3).group_id != late[1].group_id
    assert source("other").group(3).sampling_seed != late[1].sampling_seed


def test_no_task_is_drawn_twice_in_a_window_and_weights_are_kept():
    made = source(weights=(3, 1))
    groups = [made.group(index) for index in range(1000)]
    for start in range(0, 1000, 50):
        window = [(g.task.env_id, g.task.task_id) for g in groups[start : start + 50]]
        assert len(set(window)) == len(window)
    share = Counter(group.task.env_id for group in groups)
    assert 740 <= share["env0"] <= 760
    assert {group.task.split for group in groups} == {"train"}


def test_evaluations_pose_the_same_held_out_tasks_every_time():
    version = common_pb2.PolicyVersion(epoch=1, step=4)
    first, second = source().evaluation("a", version), source().evaluation("b", version)
    assert [group.task for group in first] == [group.task for group in second]
    assert len({(group.task.env_id, group.task.task_id) for group in first}) == 40
    assert {group.task.split for group in first} == {"eval"}
    assert all(group.sampling.temperature == 0 for group in first)
    assert all(group.pinned_version == version for group in first)
