import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from moera.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_REASON_UNSPECIFIED: _ClassVar[EndReason]
    END_REASON_TERMINATED: _ClassVar[EndReason]
    END_REASON_MAX_TURNS: _ClassVar[EndReason]
    END_REASON_TIMEOUT: _ClassVar[EndReason]
    END_REASON_CLOSED: _ClassVar[EndReason]
END_REASON_UNSPECIFIED: EndReason
END_REASON_TERMINATED: EndReason
END_REASON_MAX_TURNS: EndReason
END_REASON_TIMEOUT: EndReason
END_REASON_CLOSED: EndReason

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("environments", "api_version", "open_episodes", "max_episodes")
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_EPISODES_FIELD_NUMBER: _ClassVar[int]
    MAX_EPISODES_FIELD_NUMBER: _ClassVar[int]
    environments: _containers.RepeatedCompositeFieldContainer[EnvironmentInfo]
    api_version: str
    open_episodes: int
    max_episodes: int
    def __init__(self, environments: _Optional[_Iterable[_Union[EnvironmentInfo, _Mapping]]] = ..., api_version: _Optional[str] = ..., open_episodes: _Optional[int] = ..., max_episodes: _Optional[int] = ...) -> None: ...

class EnvironmentInfo(_message.Message):
    __slots__ = ("env_id", "env_version", "splits", "deterministic", "group_scored", "max_turns", "default_lease_ms")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_SCORED_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    env_version: str
    splits: _containers.RepeatedCompositeFieldContainer[SplitInfo]
    deterministic: bool
    group_scored: bool
    max_turns: int
    default_lease_ms: int
    def __init__(self, env_id: _Optional[str] = ..., env_version: _Optional[str] = ..., splits: _Optional[_Iterable[_Union[SplitInfo, _Mapping]]] = ..., deterministic: _Optional[bool] = ..., group_scored: _Optional[bool] = ..., max_turns: _Optional[int] = ..., default_lease_ms: _Optional[int] = ...) -> None: ...

class SplitInfo(_message.Message):
    __slots__ = ("name", "num_tasks", "infinite")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    INFINITE_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_tasks: int
    infinite: bool
    def __init__(self, name: _Optional[str] = ..., num_tasks: _Optional[int] = ..., infinite: _Optional[bool] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("env_id", "split", "offset", "limit")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    split: str
    offset: int
    limit: int
    def __init__(self, env_id: _Optional[str] = ..., split: _Optional[str] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "end")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[_common_pb2.Task]
    end: bool
    def __init__(self, tasks: _Optional[_Iterable[_Union[_common_pb2.Task, _Mapping]]] = ..., end: _Optional[bool] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("messages", "replace_history", "structured", "raw")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REPLACE_HISTORY_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    replace_history: bool
    structured: _struct_pb2.Value
    raw: bytes
    def __init__(self, messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ..., replace_history: _Optional[bool] = ..., structured: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., raw: _Optional[bytes] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("message", "length_limited", "structured", "raw")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_LIMITED_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    message: _common_pb2.Message
    length_limited: bool
    structured: _struct_pb2.Value
    raw: bytes
    def __init__(self, message: _Optional[_Union[_common_pb2.Message, _Mapping]] = ..., length_limited: _Optional[bool] = ..., structured: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., raw: _Optional[bytes] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("episode_id", "task", "group_id", "lease_ms", "expected_env_version")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_ENV_VERSION_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    task: _common_pb2.Task
    group_id: str
    lease_ms: int
    expected_env_version: str
    def __init__(self, episode_id: _Optional[str] = ..., task: _Optional[_Union[_common_pb2.Task, _Mapping]] = ..., group_id: _Optional[str] = ..., lease_ms: _Optional[int] = ..., expected_env_version: _Optional[str] = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("observation", "tools", "endpoint", "already_existed", "lease_expires", "env_version")
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ALREADY_EXISTED_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    ENV_VERSION_FIELD_NUMBER: _ClassVar[int]
    observation: Observation
    tools: _containers.RepeatedCompositeFieldContainer[_common_pb2.ToolSpec]
    endpoint: str
    already_existed: bool
    lease_expires: _timestamp_pb2.Timestamp
    env_version: str
    def __init__(self, observation: _Optional[_Union[Observation, _Mapping]] = ..., tools: _Optional[_Iterable[_Union[_common_pb2.ToolSpec, _Mapping]]] = ..., endpoint: _Optional[str] = ..., already_existed: _Optional[bool] = ..., lease_expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., env_version: _Optional[str] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("episode_id", "step", "action")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    step: int
    action: Action
    def __init__(self, episode_id: _Optional[str] = ..., step: _Optional[int] = ..., action: _Optional[_Union[Action, _Mapping]] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("step", "reward", "reward_terms", "terminated", "truncated", "end_reason", "observation", "metrics", "mask_turn", "replayed", "lease_expires")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    REWARD_TERMS_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    MASK_TURN_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    step: int
    reward: float
    reward_terms: _containers.RepeatedCompositeFieldContainer[_common_pb2.RewardTerm]
    terminated: bool
    truncated: bool
    end_reason: EndReason
    observation: Observation
    metrics: _containers.ScalarMap[str, float]
    mask_turn: bool
    replayed: bool
    lease_expires: _timestamp_pb2.Timestamp
    def __init__(self, step: _Optional[int] = ..., reward: _Optional[float] = ..., reward_terms: _Optional[_Iterable[_Union[_common_pb2.RewardTerm, _Mapping]]] = ..., terminated: _Optional[bool] = ..., truncated: _Optional[bool] = ..., end_reason: _Optional[_Union[EndReason, str]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., mask_turn: _Optional[bool] = ..., replayed: _Optional[bool] = ..., lease_expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RenewEpisodesRequest(_message.Message):
    __slots__ = ("episode_ids", "lease_ms")
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    lease_ms: int
    def __init__(self, episode_ids: _Optional[_Iterable[str]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RenewEpisodesResponse(_message.Message):
    __slots__ = ("unknown_episode_ids",)
    UNKNOWN_EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    unknown_episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, unknown_episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetEpisodeRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class GetEpisodeResponse(_message.Message):
    __slots__ = ("task", "reset", "last_step", "next_step", "total_reward")
    TASK_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REWARD_FIELD_NUMBER: _ClassVar[int]
    task: _common_pb2.Task
    reset: ResetResponse
    last_step: StepResponse
    next_step: int
    total_reward: float
    def __init__(self, task: _Optional[_Union[_common_pb2.Task, _Mapping]] = ..., reset: _Optional[_Union[ResetResponse, _Mapping]] = ..., last_step: _Optional[_Union[StepResponse, _Mapping]] = ..., next_step: _Optional[int] = ..., total_reward: _Optional[float] = ...) -> None: ...

class CloseEpisodeRequest(_message.Message):
    __slots__ = ("episode_id",)
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    def __init__(self, episode_id: _Optional[str] = ...) -> None: ...

class CloseEpisodeResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class ScoreGroupRequest(_message.Message):
    __slots__ = ("env_id", "group_id", "episode_ids")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_IDS_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    group_id: str
    episode_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, env_id: _Optional[str] = ..., group_id: _Optional[str] = ..., episode_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupScore(_message.Message):
    __slots__ = ("episode_id", "reward", "reward_terms")
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    REWARD_TERMS_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    reward: float
    reward_terms: _containers.RepeatedCompositeFieldContainer[_common_pb2.RewardTerm]
    def __init__(self, episode_id: _Optional[str] = ..., reward: _Optional[float] = ..., reward_terms: _Optional[_Iterable[_Union[_common_pb2.RewardTerm, _Mapping]]] = ...) -> None: ...

class ScoreGroupResponse(_message.Message):
    __slots__ = ("scores",)
    SCORES_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[GroupScore]
    def __init__(self, scores: _Optional[_Iterable[_Union[GroupScore, _Mapping]]] = ...) -> None: ...
