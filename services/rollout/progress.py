"""How far a sample got: what a partial stores and a trajectory is made of."""

from dataclasses import dataclass, field

from moera import wire
from moera.v1 import cache_pb2, common_pb2, envs_pb2
from services.rollout.recording import Recording


@dataclass
class Progress:
    """State of one sample between two tokens, complete enough for another server to go on."""

    sample_id: str
    group: common_pb2.Group
    model: common_pb2.ModelIdentity
    traceparent: str = ""
    recordings: list[Recording] = field(default_factory=list)
    """Token streams; only the last one grows."""
    transcript: list[common_pb2.Message] = field(default_factory=list)
    conversation_start: int = 0
    """Where in the transcript the messages start that the template renders."""
    tools: list[common_pb2.ToolSpec] = field(default_factory=list)
    episode_id: str = ""
    endpoint: str = ""
    env_version: str = ""
    actions: list[envs_pb2.Action] = field(default_factory=list)
    total_reward: float | None = None
    reward_terms: list[common_pb2.RewardTerm] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    turn_tokens: int = 0
    """Tokens sampled in the turn that the environment has not answered yet."""
    num_resumes: int = 0
    num_restarts: int = 0

    @property
    def next_step(self) -> int:
        """Number that the next environment step carries; the turn's number is one less."""
        return len(self.actions) + 1

    @property
    def conversation(self) -> list[common_pb2.Message]:
        """The messages that the template renders."""
        return self.transcript[self.conversation_start :]

    def pristine(self) -> "Progress":
        """Return the sample as it was before its first token, one restart later."""
        return Progress(
            self.sample_id,
            self.group,
            self.model,
            self.traceparent,
            num_resumes=self.num_resumes,
            num_restarts=self.num_restarts + 1,
        )

    def trajectory(self) -> common_pb2.Trajectory:
        """Return everything but the outcome."""
        return common_pb2.Trajectory(
            sample_id=self.sample_id,
            group_id=self.group.group_id,
            task=self.group.task,
            sequences=[recording.proto() for recording in self.recordings],
            reward_terms=self.reward_terms,
            metrics=self.metrics,
            sampling=self.group.sampling,
            traceparent=self.traceparent,
            model=self.model,
            num_turns=len(self.actions),
            num_resumes=self.num_resumes,
            num_restarts=self.num_restarts,
            transcript=self.transcript,
            env_version=self.env_version,
        )

    def finished(self, reason: "common_pb2.FinishReason", reward: float) -> common_pb2.Trajectory:
        """Return the trajectory of a sample that was played to its end."""
        trajectory = self.trajectory()
        trajectory.finish_reason = reason
        trajectory.reward = reward
        return trajectory

    def partial(self) -> common_pb2.Payload:
        """Return what another server needs to go on."""
        return wire.pack(
            cache_pb2.Partial(
                trajectory=self.trajectory(),
                episode_id=self.episode_id,
                endpoint=self.endpoint,
                next_step=self.next_step,
                total_reward=self.total_reward,
                tools=self.tools,
                unfinished_turn_tokens=self.turn_tokens,
                actions=self.actions,
                conversation_start=self.conversation_start,
            )
        )


def from_lease(lease: cache_pb2.SampleLease, model: common_pb2.ModelIdentity) -> Progress:
    """Return a leased sample's progress: that of its partial, if this model made it.

    A partial of another model, tokenizer or template restarts pristine.

    Raises:
        MoeraError: the partial is damaged.
    """
    fresh = Progress(lease.sample_id, lease.group, model)
    if not lease.HasField("partial"):
        return fresh
    partial = wire.unpack(lease.partial, cache_pb2.Partial)
    stored = partial.trajectory
    fresh.traceparent = stored.traceparent
    fresh.num_resumes = stored.num_resumes + 1
    fresh.num_restarts = stored.num_restarts
    if stored.model != model:
        return fresh.pristine()
    return Progress(
        lease.sample_id,
        lease.group,
        model,
        stored.traceparent,
        recordings=[Recording.of(sequence) for sequence in stored.sequences],
        transcript=list(stored.transcript),
        conversation_start=partial.conversation_start,
        tools=list(partial.tools),
        episode_id=partial.episode_id,
        endpoint=partial.endpoint,
        env_version=stored.env_version,
        actions=list(partial.actions),
        total_reward=partial.total_reward if partial.HasField("total_reward") else None,
        reward_terms=list(stored.reward_terms),
        metrics=dict(stored.metrics),
        turn_tokens=partial.unfinished_turn_tokens,
        num_resumes=fresh.num_resumes,
        num_restarts=stored.num_restarts,
    )
