"""[cache]: the experience and checkpoint cache."""

from typing import Annotated

from pydantic import Field, model_validator

from moera.config import Section, ServiceConfig


class CacheSection(Section):
    """The cache: stateless replicas over one Redis."""

    listen: str = "127.0.0.1:0"
    """host:port to serve on; port 0 picks a free one."""
    redis_url: str = ""
    """redis://host:port/0 or rediss://... for TLS; empty: `moera train` starts its own.
    Put credentials in MOERA_CACHE__REDIS_URL, never in a file."""
    redis_cluster: bool = False
    """The URL names a node of a Redis Cluster; a run lies in one of its slots."""
    redis_ca_file: str = ""
    """PEM file of the authority that signed the server's certificate; empty: the system's."""
    redis_cert_file: str = ""
    """PEM file of a client certificate, where Redis asks for one; with redis_key_file."""
    redis_key_file: str = ""
    """PEM file of its key."""
    redis_iam_cache: str = ""
    """Name of an ElastiCache cache that is entered with IAM: the URL's user, with a fresh token
    for each connection instead of a password. Needs rediss:// and AWS credentials."""
    redis_iam_serverless: bool = False
    """That cache is serverless."""
    require_aof: bool = True
    """Refuse a Redis without an append-only file. Off where replicas are what keeps experience,
    as on ElastiCache."""
    redis_timeout_s: Annotated[float, Field(gt=0)] = 5.0
    """How long one Redis command may take before the call fails as UNAVAILABLE."""
    max_attempts: Annotated[int, Field(ge=1)] = 8
    """Failures and lost leases of one sample after which it is set aside as POISON."""
    poison_servers: Annotated[int, Field(ge=2)] = 3
    """Different rollout servers on which a sample has failed when it is set aside as POISON."""
    memory_budget_mib: Annotated[int, Field(ge=0)] = 0
    """Redis memory past which no new group is accepted; 0: 80 % of its maxmemory, if set."""
    poll_s: Annotated[float, Field(gt=0)] = 0.1
    """How often a long poll looks for changes made through another replica."""

    @model_validator(mode="after")
    def _fits_together(self) -> "CacheSection":
        tls = self.redis_url.startswith("rediss://")
        if bool(self.redis_cert_file) != bool(self.redis_key_file):
            raise ValueError("redis_cert_file and redis_key_file go together: set both or neither")
        wants_tls = self.redis_ca_file or self.redis_cert_file or self.redis_iam_cache
        if self.redis_url and wants_tls and not tls:
            raise ValueError(
                "redis_ca_file, redis_cert_file and redis_iam_cache need TLS: use rediss://"
            )
        if self.redis_iam_serverless and not self.redis_iam_cache:
            raise ValueError("redis_iam_serverless needs redis_iam_cache, the cache's name")
        return self


class CacheConfig(ServiceConfig):
    """What a cache replica reads."""

    cache: CacheSection = CacheSection()
    """[cache]"""
