"""The training loop.

    open lineage -> publish -> [ take batch -> fetch -> pack -> forward, backward -> AdamW
                                  -> publish -> (checkpoint -> commit step) ]*  -> evaluate

- Groups are enqueued all the while; the cache bounds how far sampling runs ahead.
- Evaluations run beside training, but the next version is not published before they are done:
  they are pinned to the newest one.
- Everything of torch happens on one thread of its own; this loop only waits for it.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from moera import telemetry
from moera.errors import ConfigError, MoeraError, UnavailableError
from moera.objects import ObjectStore
from moera.v1 import cache_pb2, cache_pb2_grpc, common_pb2, learner_pb2
from moera.weights.encoder import ShardEncoder
from moera.weights.publish import alias_header, publish, publish_header
from moera.wire import Version
from services.learner import checkpoint
from services.learner.batches import Batch, Staleness, make_batch
from services.learner.config import LearnerConfig
from services.learner.control import Control
from services.learner.evaluation import evaluate
from services.learner.experience import Experience
from services.learner.journal import Journal
from services.learner.policy import Policy
from services.learner.tasks import TaskSource

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

_duration = telemetry.histogram("moera.learner.step_duration")
_trained = telemetry.counter("moera.learner.trained_tokens")
_staleness = telemetry.histogram("moera.learner.staleness")


@dataclass
class Parts:
    """What the trainer works with."""

    experience: Experience
    checkpoints: cache_pb2_grpc.CheckpointServiceStub
    objects: ObjectStore
    source: TaskSource
    journal: Journal
    policy: Policy
    model: common_pb2.ModelIdentity
    torch: ThreadPoolExecutor
    """The one thread that uses the policy."""
    restored: checkpoint.State | None


@dataclass
class _Clock:
    """Seconds of the phases of a step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, span: str = "") -> Iterator[None]:
        began = time.perf_counter()
        if span:
            with telemetry.span(span):
                yield
        else:
            yield
        self.seconds[f"time_{name}"] = time.perf_counter() - began


class Trainer:
    """Runs the loop; `control` is how operators steer it."""

    def __init__(self, run: LearnerConfig, parts: Parts, control: Control) -> None:
        self._run = run
        self._section = run.learner
        self._parts = parts
        self._control = control
        self._encoder = ShardEncoder(parts.policy.bfloat16)
        self._evaluation: asyncio.Task[None] | None = None
        self._bad_steps = 0
        self._restores: dict[int, int] = dict(parts.restored.restores) if parts.restored else {}
        self._checkpoint_step = parts.restored.step if parts.restored else None
        self.version = Version(0, parts.restored.step if parts.restored else 0)

    async def run(self) -> None:
        """Train to the last step.

        Raises:
            ConfigError: the gradient is not finite again and again.
            MoeraError: the cache stayed away, or a newer learner took over.
        """
        experience, control = self._parts.experience, self._control
        await self._open()
        async with asyncio.TaskGroup() as group:
            enqueueing = group.create_task(experience.keep_enqueueing(self._parts.source))
            self._start_evaluation(group)
            for step in range(self.version.step + 1, self._section.num_steps + 1):
                await self._step(step)
                self._start_evaluation(group)
            enqueueing.cancel()
            await control.between_steps(self._save_checkpoint)
            control.close()
            control.phase = learner_pb2.LEARNER_PHASE_EVALUATING
            await self._evaluated()
        control.phase = learner_pb2.LEARNER_PHASE_FINISHED

    async def _in_torch(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._parts.torch, work)

    # -- lineage and publishing ------------------------------------------------------------------

    async def _open(self) -> None:
        """Become the living lineage and publish where it starts."""
        restored = self._parts.restored
        step = self.version.step
        epoch = await self._parts.experience.open_lineage(step)
        self._restores[epoch] = step
        self.version = Version(epoch, step)
        self._control.reached(self.version, self._checkpoint_step, self._parts.journal.steps)
        log.info("lineage %d starts from step %d", epoch, step)
        if restored is None:
            await self._publish(anchor=True)
            return
        # A checkpoint may be durable whose step was never committed: its writer died in between.
        await self._parts.experience.commit_step(step, "")
        try:
            await self._publish_alias(Version(restored.epoch, step))
        except UnavailableError:
            raise
        except MoeraError as error:
            log.warning("the weights of step %d are published anew: %s", step, error)
            await self._publish(anchor=True)

    async def _publish(self, *, anchor: bool) -> None:
        policy = self._parts.policy
        attributes = {telemetry.VERSION: str(self.version)}
        with telemetry.span(telemetry.PUBLISH, attributes):
            weights, probe = await self._in_torch(lambda: (policy.weights(), policy.probe()))
            shard = await asyncio.to_thread(
                self._encoder.encode, self.version, weights, anchor=anchor
            )
            header = cache_pb2.ManifestHeader(
                version=self.version.proto(),
                probe=probe,
                model=self._parts.model,
                traceparent=telemetry.traceparent(),
            )
            await publish(
                self._parts.checkpoints,
                self._parts.experience.fence,
                header,
                shard,
                durable=anchor,
                patience_s=self._section.patience_s,
            )

    async def _publish_alias(self, of: Version) -> None:
        attributes = {telemetry.VERSION: str(self.version)}
        with telemetry.span(telemetry.PUBLISH, attributes):
            header = alias_header(self.version, of)
            header.probe.CopyFrom(await self._in_torch(self._parts.policy.probe))
            header.model.CopyFrom(self._parts.model)
            header.traceparent = telemetry.traceparent()
            await publish_header(
                self._parts.checkpoints,
                self._parts.experience.fence,
                header,
                patience_s=self._section.patience_s,
            )

    # -- a step ----------------------------------------------------------------------------------

    async def _step(self, step: int) -> None:
        clock = _Clock()
        began = time.perf_counter()
        with clock.phase("wait"):
            assigned = await self._batch_of(step)
        samples = [sample for group in assigned.groups for sample in group.samples]
        links = [sample.summary.traceparent for sample in samples]
        attributes = {
            telemetry.STEP_NUMBER: step,
            telemetry.VERSION: str(Version(self.version.epoch, step)),
            "moera.num_samples": len(samples),
        }
        self._control.phase = learner_pb2.LEARNER_PHASE_TRAINING
        with telemetry.span(telemetry.STEP, attributes, links=links):
            batch = await self._load(step, assigned, clock)
            values, finite = await self._train(step, batch, clock)
            await self._publish_step(step, finite, clock)
            values |= batch.metrics | clock.seconds
            values["time_step"] = time.perf_counter() - began
            values["tokens_per_second"] = values["num_tokens"] / values["time_step"]
            load = self._parts.policy.expert_load()
            self._parts.journal.step(step, str(self.version), values, load)
            self._parts.journal.samples(step, batch.trajectories)
            self._control.reached(self.version, self._checkpoint_step, self._parts.journal.steps)
            if self._is_checkpoint(step):
                with telemetry.span(telemetry.CHECKPOINT):
                    await self._save_checkpoint()
        self._measure(values, samples)

    async def _batch_of(self, step: int) -> cache_pb2.TakeBatchResponse:
        lost_before: int | None = None
        while True:
            # Between two steps, and while waiting for the next batch, operators may step in.
            await self._control.between_steps(self._save_checkpoint)
            self._control.phase = learner_pb2.LEARNER_PHASE_WAITING
            assigned = await self._parts.experience.take(step)
            if assigned.assigned:
                return assigned
            stats = await self._parts.experience.stats()
            lost = stats.counts.failed + stats.counts.dropped
            lost_before = lost if lost_before is None else lost_before
            self._give_up_if(lost - lost_before, stats)

    def _give_up_if(self, lost: int, stats: cache_pb2.GetStatsResponse) -> None:
        section = self._section
        limit = section.max_failed_batches * section.groups_per_step * section.group_size
        if lost >= limit:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(stats.failures.items()))
            raise ConfigError(
                f"{lost} samples failed while one batch was awaited (all failures so far: "
                f"{kinds}); the last one: {stats.last_failure}"
            )

    async def _load(self, step: int, assigned: cache_pb2.TakeBatchResponse, clock: _Clock) -> Batch:
        ids = [sample.sample_id for group in assigned.groups for sample in group.samples]
        with clock.phase("fetch", telemetry.FETCH):
            trajectories = await self._parts.experience.fetch(ids)
        staleness = Staleness(step, self.version.epoch, self._restores)
        with clock.phase("pack", telemetry.PACK):
            return await asyncio.to_thread(
                make_batch, assigned.groups, trajectories, self._section, staleness
            )

    async def _train(self, step: int, batch: Batch, clock: _Clock) -> tuple[dict[str, float], bool]:
        policy = self._parts.policy
        with clock.phase("forward_backward", telemetry.FORWARD_BACKWARD):
            values = await self._in_torch(lambda: policy.forward_backward(batch))
        with clock.phase("optimizer", telemetry.OPTIMIZER):
            more, finite = await self._in_torch(lambda: policy.update(step))
        self._bad_steps = 0 if finite else self._bad_steps + 1
        if self._bad_steps >= self._section.max_bad_steps:
            raise ConfigError(
                f"the gradients of {self._bad_steps} steps in a row are not finite: lower "
                "learner.optimizer.lr, or look at the rewards of the last batches in samples.jsonl"
            )
        return values | more, finite

    async def _publish_step(self, step: int, finite: bool, clock: _Clock) -> None:
        with clock.phase("evaluation"):
            await self._evaluated()
        before, self.version = self.version, Version(self.version.epoch, step)
        self._control.phase = learner_pb2.LEARNER_PHASE_PUBLISHING
        with clock.phase("publish"):
            if finite:
                await self._publish(anchor=self._is_checkpoint(step))
            else:
                log.warning("step %d: the gradient is not finite; nothing was changed", step)
                await self._publish_alias(before)

    def _is_checkpoint(self, step: int) -> bool:
        return step % self._section.checkpoint.every == 0 or step == self._section.num_steps

    async def _save_checkpoint(self) -> str:
        """Make the present step durable and commit it; returns where the checkpoint lies."""
        step = self.version.step
        if self._checkpoint_step == step:
            return self._parts.objects.uri(f"checkpoints/{step:08d}")
        self._control.phase = learner_pb2.LEARNER_PHASE_CHECKPOINTING
        state = checkpoint.State(step, self.version.epoch, dict(self._restores))
        source = Path(self._run.model.path)
        with tempfile.TemporaryDirectory() as scratch:
            files = await self._in_torch(
                lambda: checkpoint.capture(self._parts.policy, source, Path(scratch) / "model")
            )
        keep = self._section.checkpoint.keep
        uri = await asyncio.to_thread(checkpoint.write, self._parts.objects, files, state, keep)
        self._checkpoint_step = step
        self._control.reached(self.version, step, self._parts.journal.steps)
        await self._parts.experience.commit_step(step, uri)
        return uri

    def _measure(self, values: dict[str, float], samples: list[cache_pb2.AssignedSample]) -> None:
        for name, seconds in values.items():
            if name.startswith("time_"):
                _duration.record(seconds, phase=name.removeprefix("time_"))
        _trained.add(values["num_policy_tokens"])
        for sample in samples:
            _staleness.record(sample.staleness)

    # -- evaluation ------------------------------------------------------------------------------

    def _start_evaluation(self, group: asyncio.TaskGroup) -> None:
        """Start the evaluation of the newest version, if one is due and not done yet."""
        section, step = self._section.evaluation, self.version.step
        headline = step in (0, self._section.num_steps)
        due = headline or (section.every and step % section.every == 0)
        if section.num_tasks and due and not self._parts.journal.has_evaluation(step):
            self._evaluation = group.create_task(self._evaluate(self.version, headline))

    async def _evaluate(self, version: Version, headline: bool) -> None:
        parts = self._parts
        lines = await evaluate(
            parts.experience, parts.source, self._section.evaluation, version, headline
        )
        parts.journal.evaluation(lines)

    async def _evaluated(self) -> None:
        if self._evaluation:
            await self._evaluation
            self._evaluation = None
