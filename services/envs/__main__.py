"""Serve the built-in environments: `python -m services.envs --config run.toml`."""

import sys

from moera import service
from moera.env.entry import load
from moera.env.episodes import Episodes
from moera.env.server import serve_episodes
from services.envs.config import EnvsConfig


async def serve(run: EnvsConfig) -> None:
    """Serve until SIGTERM."""
    section = run.envs
    factories = {
        environment.id: load(environment.entry, environment.params)
        for environment in run.environment
        if environment.entry
    }
    episodes = Episodes(
        factories,
        max_episodes=section.max_episodes,
        lease_s=section.lease_s,
        call_deadline_s=section.call_deadline_s,
    )
    await serve_episodes(episodes, section.listen, advertise=section.advertise)


if __name__ == "__main__":
    sys.exit(service.main("envs", EnvsConfig, serve))
