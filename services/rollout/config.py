"""[rollout]: one rollout server."""

from typing import Annotated, Literal

from pydantic import Field

from moera.config import EnvironmentSection, ModelSection, Section, ServiceConfig


class RolloutSection(Section):
    """One rollout server."""

    listen: str = "127.0.0.1:0"
    """host:port to serve on; port 0 picks a free one."""
    server_id: str = "rollout-0"
    """Name of this server in leases, failures and traces."""
    engine: Literal["native"] = "native"
    """What samples tokens."""
    threads: Annotated[int, Field(ge=1)] = 1
    """CPU threads of the engine."""
    experts: Literal["eager", "grouped_mm", "batched_mm"] = "grouped_mm"
    """transformers' implementation of the experts' matrix products."""
    max_running_samples: Annotated[int, Field(ge=1)] = 128
    """Samples played at once; those waiting for their environment count too."""
    max_batch: Annotated[int, Field(ge=1)] = 128
    """Sequences decoded at once."""
    max_prefill_tokens: Annotated[int, Field(ge=1)] = 8192
    """Prompt tokens computed in one step; bounds how long decoding stands still."""
    block_size: Annotated[int, Field(ge=1)] = 8
    """Positions in a block of the KV cache; only full blocks are shared."""
    kv_cache_mib: Annotated[int, Field(ge=1)] = 256
    """Memory of the KV cache."""
    record_routes: bool = False
    """Record the experts chosen for each token, for routing replay."""
    on_update: Literal["continue", "recompute"] = "continue"
    """Running samples keep their cached keys and values at a weight update, or recompute them."""
    lease_ttl_s: Annotated[float, Field(gt=0)] = 20.0
    """A lease that is not renewed for so long goes to another server."""
    drain_s: Annotated[float, Field(gt=0)] = 5.0
    """Time to store partial trajectories after SIGTERM; a Spot notice allows up to 110 s."""
    partial_tokens: Annotated[int, Field(ge=0)] = 0
    """Store a partial every so many sampled tokens of a sample, so that even a kill loses no
    more; 0 stores partials only when draining."""
    environment_patience_s: Annotated[float, Field(gt=0)] = 60.0
    """How long a sample waits for an environment that is away or full before it is given back."""
    environment_deadline_s: Annotated[float, Field(gt=0)] = 60.0
    """Deadline of one environment call."""
    max_turns: Annotated[int, Field(ge=1)] = 32
    """Policy turns after which an episode is cut."""
    weights_poll_s: Annotated[float, Field(gt=0)] = 1.0
    """How often to look for new weights when no hint comes."""
    max_version_lag: Annotated[int, Field(ge=0)] = 2
    """Steps that the served version may lag behind the newest; past it no samples are taken."""
    probe_tolerance: Annotated[float, Field(gt=0)] = 0.02
    """Largest median absolute difference between probe logprobs and the manifest's, in nats."""


class RolloutConfig(ServiceConfig):
    """What a rollout server reads."""

    model: ModelSection
    """[model]"""
    environment: list[EnvironmentSection] = Field(default_factory=list)
    """[[environment]]"""
    rollout: RolloutSection = RolloutSection()
    """[rollout]"""
