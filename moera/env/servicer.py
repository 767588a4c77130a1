"""EnvService over an episode table: proto to domain and back."""

import asyncio

import grpc

from moera.env.environment import Environment
from moera.env.episodes import Episodes
from moera.errors import NotFoundError, UnimplementedError
from moera.v1 import common_pb2, envs_pb2, envs_pb2_grpc

_MAX_PAGE = 10_000

Context = grpc.aio.ServicerContext


class EnvServicer(envs_pb2_grpc.EnvServiceServicer):
    """moera.v1.EnvService. `advertise` is the address that later calls of an episode use."""

    def __init__(self, episodes: Episodes, advertise: str = "") -> None:
        self._episodes = episodes
        self._advertise = advertise
        # Asked for facts only; never plays.
        self._shown = {env_id: factory() for env_id, factory in episodes.factories.items()}
        self._task_ids: dict[tuple[str, str], list[str]] = {}

    async def _tasks(self, env_id: str, split: str) -> list[str]:
        environment = self._shown.get(env_id)
        if environment is None:
            raise NotFoundError(f"environment {env_id!r} is not served here")
        if (env_id, split) not in self._task_ids:
            if split not in environment.splits():
                raise NotFoundError(
                    f"environment {env_id!r} has no split {split!r}; splits: "
                    f"{', '.join(environment.splits())}"
                )
            found = await asyncio.to_thread(environment.tasks, split)
            self._task_ids[env_id, split] = [str(task_id) for task_id in found]
        return self._task_ids[env_id, split]

    async def Describe(self, request: envs_pb2.DescribeRequest, context: Context):
        """List what is served."""
        return envs_pb2.DescribeResponse(
            environments=[
                _info(env_id, environment, self._episodes.lease_s)
                for env_id, environment in self._shown.items()
            ],
            api_version="v1",
            open_episodes=len(self._episodes),
            max_episodes=self._episodes.max_episodes,
        )

    async def ListTasks(self, request: envs_pb2.ListTasksRequest, context: Context):
        """Page through a split."""
        task_ids = await self._tasks(request.env_id, request.split)
        end = request.offset + min(request.limit or _MAX_PAGE, _MAX_PAGE)
        tasks = [
            common_pb2.Task(env_id=request.env_id, task_id=task_id, split=request.split)
            for task_id in task_ids[request.offset : end]
        ]
        return envs_pb2.ListTasksResponse(tasks=tasks, end=end >= len(task_ids))

    async def Reset(self, request: envs_pb2.ResetRequest, context: Context):
        """Start an episode."""
        response = await self._episodes.reset(request)
        response.endpoint = self._advertise
        return response

    async def Step(self, request: envs_pb2.StepRequest, context: Context):
        """Act."""
        return await self._episodes.step(request)

    async def RenewEpisodes(self, request: envs_pb2.RenewEpisodesRequest, context: Context):
        """Extend leases."""
        unknown = [
            episode_id
            for episode_id in request.episode_ids
            if not self._episodes.renew(episode_id, request.lease_ms / 1e3)
        ]
        return envs_pb2.RenewEpisodesResponse(unknown_episode_ids=unknown)

    async def GetEpisode(self, request: envs_pb2.GetEpisodeRequest, context: Context):
        """Return an episode's position."""
        return self._episodes.position(request.episode_id)

    async def CloseEpisode(self, request: envs_pb2.CloseEpisodeRequest, context: Context):
        """Free an episode."""
        return envs_pb2.CloseEpisodeResponse(existed=self._episodes.close(request.episode_id))

    async def ScoreGroup(self, request: envs_pb2.ScoreGroupRequest, context: Context):
        """No environment of this SDK scores groups."""
        raise UnimplementedError(f"environment {request.env_id!r} does not score groups")


def _info(env_id: str, environment: Environment, lease_s: float) -> envs_pb2.EnvironmentInfo:
    return envs_pb2.EnvironmentInfo(
        env_id=env_id,
        env_version=environment.version,
        splits=[envs_pb2.SplitInfo(name=name) for name in environment.splits()],
        deterministic=environment.deterministic,
        max_turns=environment.max_turns,
        default_lease_ms=int(lease_s * 1e3),
    )
