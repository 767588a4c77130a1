"""What the learner writes down for people: metrics, evaluations, sampled conversations.

    metrics.jsonl  evals.jsonl  samples.jsonl  tensorboard/

After a restore, lines of steps past the restored one are dropped: those steps happen again.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from moera import jsonl, wire
from moera.v1 import common_pb2

_SAMPLES_PER_STEP = 4
_SOURCES = {
    common_pb2.SEGMENT_SOURCE_PROMPT: "prompt",
    common_pb2.SEGMENT_SOURCE_POLICY: "policy",
    common_pb2.SEGMENT_SOURCE_ENVIRONMENT: "environment",
}


class Journal:
    """Writes a run's files.

    Args:
        folder: the run's own.
        restored_step: lines of later steps are dropped.
        tokenizer: to show tokens as text.
    """

    def __init__(self, folder: Path, restored_step: int, tokenizer: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._tokenizer = tokenizer
        for name in ("metrics", "evals", "samples"):
            _drop_after(folder / f"{name}.jsonl", restored_step)
        self.steps: dict[int, dict[str, float]] = {
            line["step"]: line["values"] for line in jsonl.read(folder / "metrics.jsonl")
        }
        self._evaluated = {line["step"] for line in jsonl.read(folder / "evals.jsonl")}
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=restored_step + 1)

    def step(
        self, step: int, version: str, values: Mapping[str, float], load: Sequence[Sequence[float]]
    ) -> None:
        """Write a step's metrics; values that are not finite are left out."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        self.steps[step] = finite
        line = {"step": step, "time": time.time(), "version": version, "values": finite}
        self._append("metrics", {**line, "expert_load": load})
        for name, value in finite.items():
            self._board.add_scalar(name, value, step)
        self._board.flush()

    def evaluation(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write an evaluation, whole or not at all."""
        self._append("evals", *lines)
        for line in lines:
            self._evaluated.add(line["step"])
            for name in ("success_rate", "reward_mean"):
                self._board.add_scalar(f"eval/{line['env_id']}/{name}", line[name], line["step"])

    def has_evaluation(self, step: int) -> bool:
        """Return whether the weights of a step have been evaluated."""
        return step in self._evaluated

    def samples(self, step: int, trajectories: Sequence[common_pb2.Trajectory]) -> None:
        """Write the best and the worst conversation of the step's first groups."""
        by_group: dict[str, list[common_pb2.Trajectory]] = {}
        for trajectory in trajectories:
            by_group.setdefault(trajectory.group_id, []).append(trajectory)
        lines = []
        for members in list(by_group.values())[: _SAMPLES_PER_STEP // 2]:
            ranked = sorted(members, key=lambda member: member.reward)
            lines += [self._sample(step, ranked[-1]), self._sample(step, ranked[0])]
        self._append("samples", *lines)

    def _sample(self, step: int, trajectory: common_pb2.Trajectory) -> dict[str, Any]:
        sequences = [wire.sequence_from_proto(message) for message in trajectory.sequences]
        return {
            "step": step,
            "sample_id": trajectory.sample_id,
            "env_id": trajectory.task.env_id,
            "task_id": trajectory.task.task_id,
            "reward": trajectory.reward,
            "finish_reason": common_pb2.FinishReason.Name(trajectory.finish_reason),
            "versions": sorted(
                {
                    str(wire.Version.of(span.version))
                    for sequence in sequences
                    for span in sequence.version_spans
                }
            ),
            "num_turns": trajectory.num_turns,
            "num_resumes": trajectory.num_resumes,
            "sequences": [
                [self._segment(sequence, segment) for segment in sequence.segments]
                for sequence in sequences
            ],
        }

    def _segment(self, sequence: wire.TokenSequence, segment: common_pb2.Segment) -> dict[str, Any]:
        end = segment.start + segment.num_tokens
        return {
            "source": _SOURCES[segment.source],
            "trained": bool(sequence.loss_mask[segment.start : end].all()),
            "text": self._tokenizer.decode(sequence.token_ids[segment.start : end].tolist()),
        }

    def _append(self, name: str, *lines: Mapping[str, Any]) -> None:
        jsonl.append(self._folder / f"{name}.jsonl", *lines)

    def close(self) -> None:
        """Flush and close."""
        self._board.close()


def _drop_after(file: Path, step: int) -> None:
    if file.exists():
        jsonl.replace(file, [line for line in jsonl.read(file) if line["step"] <= step])
