"""Assigned groups and their trajectories, made up for tests."""

import numpy as np

from moera.v1 import cache_pb2, common_pb2
from moera.wire import TokenSequence, Version, sequence_to_proto, summarize

BASE = Version(1, 0)


def trajectory(
    sample_id: str, prompt: int, reply: int, reward: float, version: Version = BASE
) -> common_pb2.Trajectory:
    """Return a trajectory of random tokens; its logprobs are about those of a uniform choice."""
    noise = np.random.default_rng(abs(hash((prompt, reply))) % 2**32)
    length = prompt + reply
    mask = np.arange(length) >= prompt
    policy, given = common_pb2.SEGMENT_SOURCE_POLICY, common_pb2.SEGMENT_SOURCE_PROMPT
    sequence = TokenSequence(
        noise.integers(3, 260, length).astype("<i4"),
        mask,
        np.where(mask, noise.normal(-5.5, 0.3, length), 0.0).astype("<f4"),
        [
            common_pb2.Segment(source=given, start=0, num_tokens=prompt),
            common_pb2.Segment(source=policy, start=prompt, num_tokens=reply),
        ],
        [common_pb2.VersionSpan(version=version.proto(), start=prompt, num_tokens=reply)],
    )
    return common_pb2.Trajectory(
        sample_id=sample_id,
        group_id=sample_id.partition("/")[0],
        sequences=[sequence_to_proto(sequence)],
        reward=reward,
    )


def batch_of(
    rewards: dict[str, list[float]], version: Version = BASE
) -> tuple[list[cache_pb2.AssignedGroup], dict[str, common_pb2.Trajectory]]:
    """Return groups with these rewards; every sample has other lengths."""
    groups, trajectories = [], {}
    for number, (group_id, values) in enumerate(rewards.items()):
        group = cache_pb2.AssignedGroup(group_id=group_id, sequence=number)
        for index, reward in enumerate(values):
            sample_id = f"{group_id}/{index}"
            made = trajectory(sample_id, 3 + number, 2 + 3 * index + number, reward, version)
            trajectories[sample_id] = made
            group.samples.add(sample_id=sample_id, summary=summarize(made), staleness=index % 2)
        groups.append(group)
    return groups, trajectories
