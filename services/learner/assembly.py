"""Puts the learner together: checkpoint, policy, task lists and clients."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from moera import rpc
from moera.env.client import EnvClient
from moera.models.policy import load_tokenizer, model_identity
from moera.objects import open_store
from moera.v1 import cache_pb2_grpc
from services.learner import checkpoint
from services.learner.config import LearnerConfig
from services.learner.experience import Experience
from services.learner.journal import Journal
from services.learner.policy import Policy
from services.learner.tasks import TaskSource, list_tasks
from services.learner.trainer import Parts

_ENV_DEADLINE_S = 60.0


@asynccontextmanager
async def assembled(run: LearnerConfig) -> AsyncIterator[Parts]:
    """Open everything that training needs, at the newest checkpoint.

    Raises:
        ConfigError: the model, an environment or the storage is wrong.
        DataLossError: the newest checkpoint is damaged.
    """
    section = run.learner
    objects = open_store(run.storage_uri())
    with ThreadPoolExecutor(1, thread_name_prefix="torch") as torch_thread:
        loop = asyncio.get_running_loop()
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            state = await asyncio.to_thread(checkpoint.read_latest, objects, folder)
            path = str(folder / "model") if state else run.model.path

            def load() -> Policy:
                policy = Policy(path, run.model.dtype, section, run.run.seed)
                if state:
                    checkpoint.restore_optimizer(policy, folder)
                return policy

            policy = await loop.run_in_executor(torch_thread, load)
        source = await _source(run)
        async with rpc.channel(run.addresses.cache) as channel:
            experience_stub = cache_pb2_grpc.ExperienceServiceStub(channel)
            tokenizer = load_tokenizer(run.model.path)
            journal = Journal(run.run.path, state.step if state else 0, tokenizer)
            yield Parts(
                experience=Experience(experience_stub, section, run.run.id),
                checkpoints=cache_pb2_grpc.CheckpointServiceStub(channel),
                objects=objects,
                source=source,
                journal=journal,
                policy=policy,
                model=model_identity(run.model.path),
                torch=torch_thread,
                restored=state,
            )
            journal.close()


async def _source(run: LearnerConfig) -> TaskSource:
    client = EnvClient(
        run.environment,
        run.addresses.envs,
        deadline_s=_ENV_DEADLINE_S,
        patience_s=run.learner.patience_s,
    )
    with_eval = run.learner.evaluation.num_tasks > 0
    try:
        tasks = await list_tasks(client, run.environment, with_eval)
    finally:
        await client.close()
    return TaskSource(run.run.id, run.run.seed, run.learner, run.environment, tasks)
