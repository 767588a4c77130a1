"""[envs]: the built-in environment service."""

from typing import Annotated

from pydantic import Field

from moera.config import EnvironmentSection, Section, ServiceConfig


class EnvsSection(Section):
    """Serves every [[environment]] that has an `entry`."""

    listen: str = "127.0.0.1:0"
    """host:port to serve on; port 0 picks a free one."""
    advertise: str = ""
    """host:port that later calls of an episode go to; empty: where its reset went."""
    max_episodes: Annotated[int, Field(ge=1)] = 1024
    """Episodes open at once; past it Reset answers RESOURCE_EXHAUSTED."""
    lease_s: Annotated[float, Field(gt=0)] = 120.0
    """An episode that nobody touches for so long is closed."""
    call_deadline_s: Annotated[float, Field(gt=0)] = 30.0
    """How long the environment's code may take for one reset or step."""


class EnvsConfig(ServiceConfig):
    """What an environment server reads."""

    environment: list[EnvironmentSection] = Field(default_factory=list)
    """[[environment]]"""
    envs: EnvsSection = EnvsSection()
    """[envs]"""
