"""LearnerService: proto to domain and back."""

import grpc

from moera.v1 import learner_pb2, learner_pb2_grpc
from services.learner.control import Control

Context = grpc.aio.ServicerContext


class LearnerServicer(learner_pb2_grpc.LearnerServiceServicer):
    """moera.v1.LearnerService."""

    def __init__(self, control: Control, run_id: str, num_steps: int) -> None:
        self._control = control
        self._run_id = run_id
        self._num_steps = num_steps

    async def GetLearnerStatus(
        self, request: learner_pb2.GetLearnerStatusRequest, context: Context
    ):
        """Say where training stands."""
        control = self._control
        return learner_pb2.GetLearnerStatusResponse(
            run_id=self._run_id,
            version=control.version.proto(),
            num_steps=self._num_steps,
            phase=control.phase,
            checkpoint_step=control.checkpoint_step,
            metrics=control.steps.get(control.version.step, {}),
        )

    async def Pause(self, request: learner_pb2.PauseRequest, context: Context):
        """Stop before the next step."""
        return learner_pb2.PauseResponse(step=await self._control.pause())

    async def Resume(self, request: learner_pb2.ResumeRequest, context: Context):
        """Go on."""
        self._control.resume()
        return learner_pb2.ResumeResponse()

    async def SaveCheckpoint(self, request: learner_pb2.SaveCheckpointRequest, context: Context):
        """Write a checkpoint between two steps."""
        step, uri = await self._control.save_checkpoint()
        return learner_pb2.SaveCheckpointResponse(step=step, uri=uri)

    async def GetMetrics(self, request: learner_pb2.GetMetricsRequest, context: Context):
        """Return the metrics of past steps."""
        steps = [
            learner_pb2.StepMetrics(step=step, values=values)
            for step, values in sorted(self._control.steps.items())
            if step > request.after_step
        ]
        return learner_pb2.GetMetricsResponse(steps=steps)
