"""[learner]: what is trained, on how much data, and how it is judged."""

from typing import Annotated, Literal

from pydantic import Field

from moera.config import EnvironmentSection, ModelSection, Section, ServiceConfig


class SamplingSection(Section):
    """Distribution that training samples are drawn from."""

    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Softmax temperature."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    """Budget of one policy turn."""
    max_total_tokens: Annotated[int, Field(ge=0)] = 0
    """Budget of a whole sequence; 0 is the model's own limit."""


class OptimizerSection(Section):
    """AdamW."""

    lr: Annotated[float, Field(gt=0)] = 1e-4
    """Learning rate after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the rate rises from 0."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the first and second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay of matrices."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this norm."""


class AlgorithmSection(Section):
    """Advantages, policy loss and aggregation."""

    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    """How rewards of a group become advantages."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Lower distance of the ratio from 1 at which the loss is clipped."""
    clip_high: Annotated[float, Field(gt=0)] = 0.28
    """Upper distance."""
    aggregation: Literal["token", "sequence"] = "token"
    """Mean over all policy tokens of the batch, or over sequences of their token means."""


class EvaluationSection(Section):
    """Held-out evaluations at temperature 0."""

    num_tasks: Annotated[int, Field(ge=0)] = 100
    """Tasks of each environment; 0 turns evaluation off."""
    every: Annotated[int, Field(ge=0)] = 0
    """Steps between two evaluations beside those before and after training; 0 means none."""
    success_threshold: float = 1.0
    """Least reward that counts as success."""


class CheckpointSection(Section):
    """The learner's resume state."""

    every: Annotated[int, Field(ge=1)] = 10
    """Steps between two checkpoints."""
    keep: Annotated[int, Field(ge=1)] = 2
    """Checkpoints kept."""


class LearnerSection(Section):
    """The learner."""

    listen: str = "127.0.0.1:0"
    """host:port to serve on; port 0 picks a free one."""
    num_steps: Annotated[int, Field(ge=1)] = 40
    """Optimizer steps of the run."""
    groups_per_step: Annotated[int, Field(ge=1)] = 16
    """Groups in one optimizer step."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Samples of each task."""
    max_staleness: Annotated[int, Field(ge=0)] = 1
    """Steps that a sample's oldest policy token may lag behind the policy that trains it."""
    on_stale: Literal["evict", "mask_tokens"] = "evict"
    """What happens to a sample past it."""
    max_tokens_per_microbatch: Annotated[int, Field(ge=1)] = 8192
    """Tokens in one forward and backward pass; bounds memory, never changes the result."""
    threads: Annotated[int, Field(ge=1)] = 1
    """CPU threads."""
    experts: Literal["eager", "grouped_mm", "batched_mm"] = "grouped_mm"
    """transformers' implementation of the experts' matrix products."""
    max_bad_steps: Annotated[int, Field(ge=1)] = 3
    """Steps in a row whose gradient is not finite (they are skipped) before the run is given up."""
    max_failed_batches: Annotated[int, Field(ge=1)] = 4
    """Batches' worth of samples that may fail while one batch is awaited before the run is given
    up: an environment that always fails would otherwise keep it busy for ever."""
    patience_s: Annotated[float, Field(gt=0)] = 600.0
    """How long to try again while the cache or an environment server is away."""
    linger: bool = False
    """Keep answering status after the last step instead of exiting: a cluster would start the
    process again."""
    sampling: SamplingSection = SamplingSection()
    """[learner.sampling]"""
    optimizer: OptimizerSection = OptimizerSection()
    """[learner.optimizer]"""
    algorithm: AlgorithmSection = AlgorithmSection()
    """[learner.algorithm]"""
    evaluation: EvaluationSection = EvaluationSection()
    """[learner.evaluation]"""
    checkpoint: CheckpointSection = CheckpointSection()
    """[learner.checkpoint]"""


class LearnerConfig(ServiceConfig):
    """What the learner reads."""

    model: ModelSection
    """[model]"""
    environment: list[EnvironmentSection] = Field(default_factory=list)
    """[[environment]]"""
    learner: LearnerSection = LearnerSection()
    """[learner]"""
