"""Which task is drawn when: a pure function of (run, seed, draw index).

Enqueueing again after a restart therefore offers the same groups under the same ids. Within a
window as long as an environment's task list no task of it is drawn twice.
"""

import bisect
import itertools
from collections.abc import Sequence

import numpy as np
import xxhash

from moera.config import EnvironmentSection
from moera.env.client import EnvClient
from moera.errors import ConfigError
from moera.v1 import common_pb2
from services.learner.config import LearnerSection


def _noise(*parts: object) -> int:
    return xxhash.xxh3_64_intdigest("/".join(str(part) for part in parts).encode())


class TaskSource:
    """Draws training groups and evaluation tasks."""

    def __init__(
        self,
        run_id: str,
        seed: int,
        section: LearnerSection,
        environments: Sequence[EnvironmentSection],
        tasks: dict[str, dict[str, list[common_pb2.Task]]],
    ) -> None:
        """Keep the task lists.

        Args:
            tasks: environment id, then "train" or "eval", to its tasks.
        """
        self._run_id = run_id
        self._seed = seed
        self._section = section
        self._ids = [environment.id for environment in environments]
        total = sum(environment.weight for environment in environments)
        shares = (environment.weight / total for environment in environments)
        self._bounds = list(itertools.accumulate(shares))
        self._tasks = tasks
        self._orders: dict[tuple[str, int], np.ndarray] = {}

    def group(self, index: int) -> common_pb2.Group:
        """Return the training group of a draw."""
        env_id = self._environment(index)
        section = self._section
        return common_pb2.Group(
            group_id=f"{self._run_id}-g{index:07d}",
            task=self._task(env_id, index),
            num_samples=section.group_size,
            purpose=common_pb2.PURPOSE_TRAIN,
            sampling=common_pb2.SamplingParams(
                temperature=section.sampling.temperature,
                max_new_tokens=section.sampling.max_new_tokens,
                max_total_tokens=section.sampling.max_total_tokens,
            ),
            sampling_seed=_noise(self._run_id, self._seed, index),
        )

    def _environment(self, index: int) -> str:
        # Steps of the golden ratio keep every stretch of draws close to the weights.
        place = (index * 0.6180339887498949 + _noise(self._seed, "start") / 2**64) % 1.0
        found = bisect.bisect_right(self._bounds, place)
        return self._ids[min(found, len(self._ids) - 1)]

    def _task(self, env_id: str, index: int) -> common_pb2.Task:
        tasks = self._tasks[env_id]["train"]
        window, place = divmod(index, len(tasks))
        if (env_id, window) not in self._orders:
            # Windows pass one after the other: the order of an earlier one is not needed again.
            self._orders = {key: order for key, order in self._orders.items() if key[0] != env_id}
            noise = np.random.default_rng(_noise(self._seed, env_id, window))
            self._orders[env_id, window] = noise.permutation(len(tasks))
        return tasks[self._orders[env_id, window][place]]

    def evaluation(self, eval_id: str, version: common_pb2.PolicyVersion) -> list[common_pb2.Group]:
        """Return the groups of an evaluation, pinned to one version; the same tasks each time."""
        sampling = common_pb2.SamplingParams(
            temperature=0.0,
            max_new_tokens=self._section.sampling.max_new_tokens,
            max_total_tokens=self._section.sampling.max_total_tokens,
        )
        groups = []
        for env_id in self._ids:
            tasks = self._tasks[env_id]["eval"]
            order = np.random.default_rng(_noise(self._seed, env_id)).permutation(len(tasks))
            for place in order[: self._section.evaluation.num_tasks]:
                task = tasks[place]
                groups.append(
                    common_pb2.Group(
                        group_id=f"{eval_id}-{env_id}-{place}",
                        task=task,
                        num_samples=1,
                        purpose=common_pb2.PURPOSE_EVAL,
                        eval_id=eval_id,
                        pinned_version=version,
                        sampling=sampling,
                    )
                )
        return groups


async def list_tasks(
    client: EnvClient, environments: Sequence[EnvironmentSection], with_eval: bool
) -> dict[str, dict[str, list[common_pb2.Task]]]:
    """Ask every environment for its tasks.

    Raises:
        ConfigError: a split is unknown or empty.
    """
    found: dict[str, dict[str, list[common_pb2.Task]]] = {}
    for environment in environments:
        splits = {"train": environment.train_split}
        if with_eval:
            splits["eval"] = environment.eval_split
        found[environment.id] = {}
        for name, split in splits.items():
            tasks = await client.list_tasks(environment.id, split)
            if not tasks:
                raise ConfigError(
                    f"environment {environment.id!r} has no task in split {split!r}: set its "
                    f"{name}_split, or learner.evaluation.num_tasks = 0 to go without evaluation"
                )
            found[environment.id][name] = tasks
    return found
