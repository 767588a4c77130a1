"""[cache]: the experience and checkpoint cache."""

from typing import Annotated

from pydantic import Field

from moera.config import Section, ServiceConfig


class CacheSection(Section):
    """The cache: stateless replicas over one Redis."""

    listen: str = "127.0.0.1:0"
    """host:port to serve on; port 0 picks a free one."""
    redis_url: str = ""
    """redis://host:port/0 or rediss://... for TLS; empty: `moera train` starts its own.
    Put credentials in MOERA_CACHE__REDIS_URL, never in a file."""
    redis_timeout_s: Annotated[float, Field(gt=0)] = 5.0
    """How long one Redis command may take before the call fails as UNAVAILABLE."""
    max_attempts: Annotated[int, Field(ge=1)] = 8
    """Failures and lost leases of one sample after which it is set aside as POISON."""
    memory_budget_mib: Annotated[int, Field(ge=0)] = 0
    """Redis memory past which no new group is accepted; 0: 80 % of its maxmemory, if set."""
    poll_s: Annotated[float, Field(gt=0)] = 0.1
    """How often a long poll looks for changes made through another replica."""


class CacheConfig(ServiceConfig):
    """What a cache replica reads."""

    cache: CacheSection = CacheSection()
    """[cache]"""
