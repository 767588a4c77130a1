from moera.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LearnerPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEARNER_PHASE_UNSPECIFIED: _ClassVar[LearnerPhase]
    LEARNER_PHASE_STARTING: _ClassVar[LearnerPhase]
    LEARNER_PHASE_WAITING: _ClassVar[LearnerPhase]
    LEARNER_PHASE_TRAINING: _ClassVar[LearnerPhase]
    LEARNER_PHASE_PUBLISHING: _ClassVar[LearnerPhase]
    LEARNER_PHASE_EVALUATING: _ClassVar[LearnerPhase]
    LEARNER_PHASE_PAUSED: _ClassVar[LearnerPhase]
    LEARNER_PHASE_FINISHED: _ClassVar[LearnerPhase]
    LEARNER_PHASE_CHECKPOINTING: _ClassVar[LearnerPhase]
LEARNER_PHASE_UNSPECIFIED: LearnerPhase
LEARNER_PHASE_STARTING: LearnerPhase
LEARNER_PHASE_WAITING: LearnerPhase
LEARNER_PHASE_TRAINING: LearnerPhase
LEARNER_PHASE_PUBLISHING: LearnerPhase
LEARNER_PHASE_EVALUATING: LearnerPhase
LEARNER_PHASE_PAUSED: LearnerPhase
LEARNER_PHASE_FINISHED: LearnerPhase
LEARNER_PHASE_CHECKPOINTING: LearnerPhase

class GetLearnerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLearnerStatusResponse(_message.Message):
    __slots__ = ("run_id", "version", "num_steps", "phase", "checkpoint_step", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    version: _common_pb2.PolicyVersion
    num_steps: int
    phase: LearnerPhase
    checkpoint_step: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, run_id: _Optional[str] = ..., version: _Optional[_Union[_common_pb2.PolicyVersion, _Mapping]] = ..., num_steps: _Optional[int] = ..., phase: _Optional[_Union[LearnerPhase, str]] = ..., checkpoint_step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SaveCheckpointRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SaveCheckpointResponse(_message.Message):
    __slots__ = ("step", "uri")
    STEP_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    step: int
    uri: str
    def __init__(self, step: _Optional[int] = ..., uri: _Optional[str] = ...) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ("after_step",)
    AFTER_STEP_FIELD_NUMBER: _ClassVar[int]
    after_step: int
    def __init__(self, after_step: _Optional[int] = ...) -> None: ...

class StepMetrics(_message.Message):
    __slots__ = ("step", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    step: int
    values: _containers.ScalarMap[str, float]
    def __init__(self, step: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[StepMetrics]
    def __init__(self, steps: _Optional[_Iterable[_Union[StepMetrics, _Mapping]]] = ...) -> None: ...
