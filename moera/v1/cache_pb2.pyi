import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from moera.v1 import common_pb2 as _common_pb2
from moera.v1 import envs_pb2 as _envs_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OnStale(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_STALE_UNSPECIFIED: _ClassVar[OnStale]
    ON_STALE_EVICT: _ClassVar[OnStale]
    ON_STALE_MASK_TOKENS: _ClassVar[OnStale]

class CommitOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMIT_OUTCOME_UNSPECIFIED: _ClassVar[CommitOutcome]
    COMMIT_OUTCOME_COMMITTED: _ClassVar[CommitOutcome]
    COMMIT_OUTCOME_DUPLICATE: _ClassVar[CommitOutcome]

class SliceEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLICE_ENCODING_UNSPECIFIED: _ClassVar[SliceEncoding]
    SLICE_ENCODING_FULL: _ClassVar[SliceEncoding]
    SLICE_ENCODING_DELTA: _ClassVar[SliceEncoding]
    SLICE_ENCODING_UNCHANGED: _ClassVar[SliceEncoding]
ON_STALE_UNSPECIFIED: OnStale
ON_STALE_EVICT: OnStale
ON_STALE_MASK_TOKENS: OnStale
COMMIT_OUTCOME_UNSPECIFIED: CommitOutcome
COMMIT_OUTCOME_COMMITTED: CommitOutcome
COMMIT_OUTCOME_DUPLICATE: CommitOutcome
SLICE_ENCODING_UNSPECIFIED: SliceEncoding
SLICE_ENCODING_FULL: SliceEncoding
SLICE_ENCODING_DELTA: SliceEncoding
SLICE_ENCODING_UNCHANGED: SliceEncoding

class Fence(_message.Message):
    __slots__ = ("epoch", "token")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    token: str
    def __init__(self, epoch: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class StalenessBudget(_message.Message):
    __slots__ = ("groups_per_step", "max_staleness", "on_stale")
    GROUPS_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    ON_STALE_FIELD_NUMBER: _ClassVar[int]
    groups_per_step: int
    max_staleness: int
    on_stale: OnStale
    def __init__(self, groups_per_step: _Optional[int] = ..., max_staleness: _Optional[int] = ..., on_stale: _Optional[_Union[OnStale, str]] = ...) -> None: ...

class OpenLineageRequest(_message.Message):
    __slots__ = ("request_id", "run_id", "restored_step", "budget")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    RESTORED_STEP_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    restored_step: int
    budget: StalenessBudget
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., restored_step: _Optional[int] = ..., budget: _Optional[_Union[StalenessBudget, _Mapping]] = ...) -> None: ...

class OpenLineageResponse(_message.Message):
    __slots__ = ("fence", "committed_step", "assigned_steps", "enqueued_groups")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_STEP_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_STEPS_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    fence: Fence
    committed_step: int
    assigned_steps: _containers.RepeatedScalarFieldContainer[int]
    enqueued_groups: int
    def __init__(self, fence: _Optional[_Union[Fence, _Mapping]] = ..., committed_step: _Optional[int] = ..., assigned_steps: _Optional[_Iterable[int]] = ..., enqueued_groups: _Optional[int] = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("fence", "groups")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    fence: Fence
    groups: _containers.RepeatedCompositeFieldContainer[_common_pb2.Group]
    def __init__(self, fence: _Optional[_Union[Fence, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[_common_pb2.Group, _Mapping]]] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("accepted_group_ids", "free_groups")
    ACCEPTED_GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    FREE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    accepted_group_ids: _containers.RepeatedScalarFieldContainer[str]
    free_groups: int
    def __init__(self, accepted_group_ids: _Optional[_Iterable[str]] = ..., free_groups: _Optional[int] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("request_id", "server_id", "max_samples", "ttl_ms", "wait_ms", "serving_version")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    SERVING_VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    server_id: str
    max_samples: int
    ttl_ms: int
    wait_ms: int
    serving_version: _common_pb2.PolicyVersion
    def __init__(self, request_id: _Optional[str] = ..., server_id: _Optional[str] = ..., max_samples: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., serving_version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ...) -> None: ...

class SampleLease(_message.Message):
    __slots__ = ("sample_id", "token", "group", "index", "partial", "attempt", "expires")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    token: int
    group: _common_pb2.Group
    index: int
    partial: _common_pb2.Payload
    attempt: int
    expires: _timestamp_pb2.Timestamp
    def __init__(self, sample_id: _Optional[str] = ..., token: _Optional[int] = ..., group: _Optional[_Union[_common_pb2.Group, _Mapping]] = ..., index: _Optional[int] = ..., partial: _Optional[_Union[_common_pb2.Payload, _Mapping]] = ..., attempt: _Optional[int] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Partial(_message.Message):
    __slots__ = ("trajectory", "episode_id", "endpoint", "next_step", "total_reward", "tools", "unfinished_turn_tokens", "actions", "conversation_start")
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_TURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_START_FIELD_NUMBER: _ClassVar[int]
    trajectory: _common_pb2.Trajectory
    episode_id: str
    endpoint: str
    next_step: int
    total_reward: float
    tools: _containers.RepeatedCompositeFieldContainer[_common_pb2.ToolSpec]
    unfinished_turn_tokens: int
    actions: _containers.RepeatedCompositeFieldContainer[_envs_pb2.Action]
    conversation_start: int
    def __init__(self, trajectory: _Optional[_Union[_common_pb2.Trajectory, _Mapping]] = ..., episode_id: _Optional[str] = ..., endpoint: _Optional[str] = ..., next_step: _Optional[int] = ..., total_reward: _Optional[float] = ..., tools: _Optional[_Iterable[_Union[_common_pb2.ToolSpec, _Mapping]]] = ..., unfinished_turn_tokens: _Optional[int] = ..., actions: _Optional[_Iterable[_Union[_envs_pb2.Action, _Mapping]]] = ..., conversation_start: _Optional[int] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[SampleLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[SampleLease, _Mapping]]] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("sample_id", "token")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    token: int
    def __init__(self, sample_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("server_id", "leases", "ttl_ms")
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    server_id: str
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    ttl_ms: int
    def __init__(self, server_id: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    def __init__(self, lost: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ...) -> None: ...

class SavePartialRequest(_message.Message):
    __slots__ = ("lease", "partial", "partial_upload_id", "release")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    partial: _common_pb2.Payload
    partial_upload_id: str
    release: bool
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., partial: _Optional[_Union[_common_pb2.Payload, _Mapping]] = ..., partial_upload_id: _Optional[str] = ..., release: _Optional[bool] = ...) -> None: ...

class SavePartialResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UploadPayloadRequest(_message.Message):
    __slots__ = ("upload_id", "index", "data", "header")
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    upload_id: str
    index: int
    data: bytes
    header: _common_pb2.Payload
    def __init__(self, upload_id: _Optional[str] = ..., index: _Optional[int] = ..., data: _Optional[bytes] = ..., header: _Optional[_Union[_common_pb2.Payload, _Mapping]] = ...) -> None: ...

class UploadPayloadResponse(_message.Message):
    __slots__ = ("stored_bytes",)
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    stored_bytes: int
    def __init__(self, stored_bytes: _Optional[int] = ...) -> None: ...

class SampleSummary(_message.Message):
    __slots__ = ("oldest_version", "newest_version", "num_tokens", "num_policy_tokens", "reward", "failure", "traceparent")
    OLDEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_POLICY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    oldest_version: _common_pb2.PolicyVersion
    newest_version: _common_pb2.PolicyVersion
    num_tokens: int
    num_policy_tokens: int
    reward: float
    failure: _common_pb2.Failure
    traceparent: str
    def __init__(self, oldest_version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., newest_version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., num_tokens: _Optional[int] = ..., num_policy_tokens: _Optional[int] = ..., reward: _Optional[float] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("lease", "server_id", "summary", "trajectory", "trajectory_upload_id")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    server_id: str
    summary: SampleSummary
    trajectory: _common_pb2.Payload
    trajectory_upload_id: str
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., server_id: _Optional[str] = ..., summary: _Optional[_Union[SampleSummary, _Mapping]] = ..., trajectory: _Optional[_Union[_common_pb2.Payload, _Mapping]] = ..., trajectory_upload_id: _Optional[str] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: CommitOutcome
    def __init__(self, outcome: _Optional[_Union[CommitOutcome, str]] = ...) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("lease", "server_id", "failure", "retryable")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    server_id: str
    failure: _common_pb2.Failure
    retryable: bool
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., server_id: _Optional[str] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ..., retryable: _Optional[bool] = ...) -> None: ...

class FailResponse(_message.Message):
    __slots__ = ("requeued", "attempts")
    REQUEUED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    requeued: bool
    attempts: int
    def __init__(self, requeued: _Optional[bool] = ..., attempts: _Optional[int] = ...) -> None: ...

class TakeBatchRequest(_message.Message):
    __slots__ = ("fence", "step", "wait_ms")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    fence: Fence
    step: int
    wait_ms: int
    def __init__(self, fence: _Optional[_Union[Fence, _Mapping]] = ..., step: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class AssignedSample(_message.Message):
    __slots__ = ("sample_id", "summary", "staleness")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    summary: SampleSummary
    staleness: int
    def __init__(self, sample_id: _Optional[str] = ..., summary: _Optional[_Union[SampleSummary, _Mapping]] = ..., staleness: _Optional[int] = ...) -> None: ...

class AssignedGroup(_message.Message):
    __slots__ = ("group_id", "sequence", "samples")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    sequence: int
    samples: _containers.RepeatedCompositeFieldContainer[AssignedSample]
    def __init__(self, group_id: _Optional[str] = ..., sequence: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[AssignedSample, _Mapping]]] = ...) -> None: ...

class TakeBatchResponse(_message.Message):
    __slots__ = ("assigned", "groups", "ready_groups")
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    READY_GROUPS_FIELD_NUMBER: _ClassVar[int]
    assigned: bool
    groups: _containers.RepeatedCompositeFieldContainer[AssignedGroup]
    ready_groups: int
    def __init__(self, assigned: _Optional[bool] = ..., groups: _Optional[_Iterable[_Union[AssignedGroup, _Mapping]]] = ..., ready_groups: _Optional[int] = ...) -> None: ...

class FetchTrajectoriesRequest(_message.Message):
    __slots__ = ("sample_ids",)
    SAMPLE_IDS_FIELD_NUMBER: _ClassVar[int]
    sample_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sample_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class FetchTrajectoriesResponse(_message.Message):
    __slots__ = ("sample_id", "trajectory", "last")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    trajectory: _common_pb2.Payload
    last: bool
    def __init__(self, sample_id: _Optional[str] = ..., trajectory: _Optional[_Union[_common_pb2.Payload, _Mapping]] = ..., last: _Optional[bool] = ...) -> None: ...

class CommitStepRequest(_message.Message):
    __slots__ = ("fence", "step", "checkpoint_uri")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    fence: Fence
    step: int
    checkpoint_uri: str
    def __init__(self, fence: _Optional[_Union[Fence, _Mapping]] = ..., step: _Optional[int] = ..., checkpoint_uri: _Optional[str] = ...) -> None: ...

class CommitStepResponse(_message.Message):
    __slots__ = ("trained_samples",)
    TRAINED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    trained_samples: int
    def __init__(self, trained_samples: _Optional[int] = ...) -> None: ...

class CollectEvalRequest(_message.Message):
    __slots__ = ("eval_id", "wait_ms")
    EVAL_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    eval_id: str
    wait_ms: int
    def __init__(self, eval_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class CollectEvalResponse(_message.Message):
    __slots__ = ("done", "num_samples", "samples")
    DONE_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    done: bool
    num_samples: int
    samples: _containers.RepeatedCompositeFieldContainer[AssignedSample]
    def __init__(self, done: _Optional[bool] = ..., num_samples: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[AssignedSample, _Mapping]]] = ...) -> None: ...

class ReleaseEvalRequest(_message.Message):
    __slots__ = ("eval_id",)
    EVAL_ID_FIELD_NUMBER: _ClassVar[int]
    eval_id: str
    def __init__(self, eval_id: _Optional[str] = ...) -> None: ...

class ReleaseEvalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SampleCounts(_message.Message):
    __slots__ = ("enqueued", "pending", "leased", "committed", "ready", "assigned", "trained", "evicted", "dropped", "failed")
    ENQUEUED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    enqueued: int
    pending: int
    leased: int
    committed: int
    ready: int
    assigned: int
    trained: int
    evicted: int
    dropped: int
    failed: int
    def __init__(self, enqueued: _Optional[int] = ..., pending: _Optional[int] = ..., leased: _Optional[int] = ..., committed: _Optional[int] = ..., ready: _Optional[int] = ..., assigned: _Optional[int] = ..., trained: _Optional[int] = ..., evicted: _Optional[int] = ..., dropped: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("counts", "partials", "ready_groups", "outstanding_groups", "free_groups", "committed_step", "assigned_step", "epoch", "latest_version", "used_memory_bytes", "failures", "eval_samples_open", "duplicate_commits", "expired_leases", "last_failure")
    class FailuresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTIALS_FIELD_NUMBER: _ClassVar[int]
    READY_GROUPS_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_GROUPS_FIELD_NUMBER: _ClassVar[int]
    FREE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_STEP_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LATEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    USED_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    EVAL_SAMPLES_OPEN_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_COMMITS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_LEASES_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    counts: SampleCounts
    partials: int
    ready_groups: int
    outstanding_groups: int
    free_groups: int
    committed_step: int
    assigned_step: int
    epoch: int
    latest_version: _common_pb2.PolicyVersion
    used_memory_bytes: int
    failures: _containers.ScalarMap[str, int]
    eval_samples_open: int
    duplicate_commits: int
    expired_leases: int
    last_failure: str
    def __init__(self, counts: _Optional[_Union[SampleCounts, _Mapping]] = ..., partials: _Optional[int] = ..., ready_groups: _Optional[int] = ..., outstanding_groups: _Optional[int] = ..., free_groups: _Optional[int] = ..., committed_step: _Optional[int] = ..., assigned_step: _Optional[int] = ..., epoch: _Optional[int] = ..., latest_version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., used_memory_bytes: _Optional[int] = ..., failures: _Optional[_Mapping[str, int]] = ..., eval_samples_open: _Optional[int] = ..., duplicate_commits: _Optional[int] = ..., expired_leases: _Optional[int] = ..., last_failure: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("digest", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    data: bytes
    def __init__(self, digest: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class FindMissingChunksRequest(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FindMissingChunksResponse(_message.Message):
    __slots__ = ("missing",)
    MISSING_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, missing: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PutChunksRequest(_message.Message):
    __slots__ = ("chunk", "durable")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    chunk: Chunk
    durable: bool
    def __init__(self, chunk: _Optional[_Union[Chunk, _Mapping]] = ..., durable: _Optional[bool] = ...) -> None: ...

class PutChunksResponse(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: int
    def __init__(self, stored: _Optional[int] = ...) -> None: ...

class ChunkRef(_message.Message):
    __slots__ = ("digest", "stored_bytes")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    stored_bytes: int
    def __init__(self, digest: _Optional[bytes] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("name", "dtype", "full_shape", "offset", "extent", "encoding", "chunks", "decoded_bytes", "digest", "num_changed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    FULL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXTENT_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DECODED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUM_CHANGED_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _common_pb2.Dtype
    full_shape: _containers.RepeatedScalarFieldContainer[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    extent: _containers.RepeatedScalarFieldContainer[int]
    encoding: SliceEncoding
    chunks: _containers.RepeatedCompositeFieldContainer[ChunkRef]
    decoded_bytes: int
    digest: bytes
    num_changed: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_common_pb2.Dtype, str]] = ..., full_shape: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ..., extent: _Optional[_Iterable[int]] = ..., encoding: _Optional[_Union[SliceEncoding, str]] = ..., chunks: _Optional[_Iterable[_Union[ChunkRef, _Mapping]]] = ..., decoded_bytes: _Optional[int] = ..., digest: _Optional[bytes] = ..., num_changed: _Optional[int] = ...) -> None: ...

class StageShardRequest(_message.Message):
    __slots__ = ("fence", "version", "rank", "world_size", "slices")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    fence: Fence
    version: _common_pb2.PolicyVersion
    rank: int
    world_size: int
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    def __init__(self, fence: _Optional[_Union[Fence, _Mapping]] = ..., version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ...) -> None: ...

class StageShardResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Probe(_message.Message):
    __slots__ = ("token_ids", "logprobs")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _common_pb2.Tensor
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Union[_common_pb2.Tensor, _Mapping]] = ...) -> None: ...

class ManifestHeader(_message.Message):
    __slots__ = ("version", "base_version", "base_digest", "target_digest", "alias_of", "world_size", "probe", "model", "traceparent", "published", "chain_length", "stored_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TARGET_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ALIAS_OF_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    CHAIN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: _common_pb2.PolicyVersion
    base_version: _common_pb2.PolicyVersion
    base_digest: bytes
    target_digest: bytes
    alias_of: _common_pb2.PolicyVersion
    world_size: int
    probe: Probe
    model: _common_pb2.ModelIdentity
    traceparent: str
    published: _timestamp_pb2.Timestamp
    chain_length: int
    stored_bytes: int
    def __init__(self, version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., base_version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., base_digest: _Optional[bytes] = ..., target_digest: _Optional[bytes] = ..., alias_of: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., world_size: _Optional[int] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., model: _Optional[_Union[_common_pb2.ModelIdentity, _Mapping]] = ..., traceparent: _Optional[str] = ..., published: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., chain_length: _Optional[int] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class PublishVersionRequest(_message.Message):
    __slots__ = ("fence", "header")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    fence: Fence
    header: ManifestHeader
    def __init__(self, fence: _Optional[_Union[Fence, _Mapping]] = ..., header: _Optional[_Union[ManifestHeader, _Mapping]] = ...) -> None: ...

class PublishVersionResponse(_message.Message):
    __slots__ = ("already_published",)
    ALREADY_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    already_published: bool
    def __init__(self, already_published: _Optional[bool] = ...) -> None: ...

class GetManifestRequest(_message.Message):
    __slots__ = ("version", "header_only")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEADER_ONLY_FIELD_NUMBER: _ClassVar[int]
    version: _common_pb2.PolicyVersion
    header_only: bool
    def __init__(self, version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., header_only: _Optional[bool] = ...) -> None: ...

class GetManifestResponse(_message.Message):
    __slots__ = ("header", "shard")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    header: ManifestHeader
    shard: ShardPart
    def __init__(self, header: _Optional[_Union[ManifestHeader, _Mapping]] = ..., shard: _Optional[_Union[ShardPart, _Mapping]] = ...) -> None: ...

class ShardPart(_message.Message):
    __slots__ = ("rank", "slices")
    RANK_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    def __init__(self, rank: _Optional[int] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ...) -> None: ...

class GetChunksRequest(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetChunksResponse(_message.Message):
    __slots__ = ("chunk",)
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: Chunk
    def __init__(self, chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class WatchVersionsRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: _common_pb2.PolicyVersion
    def __init__(self, after: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ...) -> None: ...

class WatchVersionsResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: _common_pb2.PolicyVersion
    def __init__(self, version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ...) -> None: ...
