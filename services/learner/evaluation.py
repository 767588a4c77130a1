"""Held-out evaluations: greedy episodes of one pinned weight version."""

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

from moera import telemetry
from moera.v1 import cache_pb2
from moera.wire import Version
from services.learner.config import EvaluationSection
from services.learner.experience import Experience
from services.learner.tasks import TaskSource

_LINEAGES_BACK = 20


async def evaluate(
    experience: Experience,
    source: TaskSource,
    section: EvaluationSection,
    version: Version,
    headline: bool,
) -> list[dict[str, Any]]:
    """Play every held-out task once; returns a line for each environment and one for "all".

    The weights must stay published as the newest version until this returns.
    """
    eval_id = f"eval-{version}"
    # One that a dead lineage left unfinished can never end: nobody serves its version any more.
    for epoch in range(max(1, version.epoch - _LINEAGES_BACK), version.epoch):
        await experience.release_eval(f"eval-{Version(epoch, version.step)}")
    groups = source.evaluation(eval_id, version.proto())
    env_of = {f"{group.group_id}/0": group.task.env_id for group in groups}
    attributes = {telemetry.VERSION: str(version)}
    with telemetry.span(telemetry.EVALUATION, attributes):
        await experience.enqueue(groups)
        collected = await experience.collect_eval(eval_id)
    samples = {sample.sample_id: sample.summary for sample in collected.samples}
    shared = {
        "eval_id": eval_id,
        "step": version.step,
        "version": str(version),
        "time": time.time(),
        "headline": headline,
    }
    lines = []
    for env_id in ["all", *sorted(set(env_of.values()))]:
        chosen = [samples[key] for key, value in env_of.items() if env_id in ("all", value)]
        lines.append({**shared, "env_id": env_id, **result(chosen, section.success_threshold)})
    return lines


def result(
    summaries: Iterable[cache_pb2.SampleSummary], success_threshold: float
) -> Mapping[str, float | int]:
    """Summarise samples. Failures are counted, and are in no mean: they are no reward of 0."""
    summaries = list(summaries)
    scored = [each for each in summaries if not each.HasField("failure")]
    rewards = [each.reward for each in scored]
    return {
        "num_tasks": len(summaries),
        "failures": len(summaries) - len(scored),
        "success_rate": _mean(reward >= success_threshold - 1e-9 for reward in rewards),
        "reward_mean": _mean(rewards),
        "response_tokens_mean": _mean(each.num_policy_tokens for each in scored),
    }


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return statistics.fmean(values) if values else 0.0
