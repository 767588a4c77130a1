"""IAM authentication of ElastiCache: a short-lived token in place of a password.

A token is a presigned `connect` request, good for 15 minutes; ElastiCache ends a connection after
12 hours. The client asks for a token each time it connects, so neither limit needs a timer.

Source: Amazon ElastiCache User Guide, "Authenticating with IAM".
"""

from typing import Any
from urllib.parse import urlencode

from redis.credentials import CredentialProvider

from moera.errors import ConfigError

_SERVICE = "elasticache"
_TOKEN_S = 900


class IamCredentials(CredentialProvider):
    """User and a fresh token for each new connection.

    Raises:
        ConfigError: this process has no AWS region.
    """

    def __init__(self, user: str, cache: str, *, serverless: bool = False) -> None:
        # Only who uses IAM pays for loading botocore.
        import botocore.session

        session: Any = botocore.session.get_session()
        region = session.get_config_variable("region")
        if not region:
            raise ConfigError("cache.redis_iam_cache needs an AWS region: set AWS_DEFAULT_REGION")
        self._session = session
        self._region = region
        self._user = user
        query = {"Action": "connect", "User": user}
        if serverless:
            query["ResourceType"] = "ServerlessCache"
        self._url = f"https://{cache}/?{urlencode(query)}"

    def get_credentials(self) -> tuple[str, str]:
        """Return user and token.

        Raises:
            ConfigError: this process has no AWS credentials.
        """
        from botocore.model import ServiceId
        from botocore.signers import RequestSigner

        # Asked for anew each time: a pod's own credentials are rotated too.
        credentials = self._session.get_credentials()
        if credentials is None:
            raise ConfigError(
                "cache.redis_iam_cache needs AWS credentials: give the pod an identity"
            )
        signer = RequestSigner(
            ServiceId(_SERVICE),
            self._region,
            _SERVICE,
            "v4",
            credentials,
            self._session.get_component("event_emitter"),
        )
        request = {"method": "GET", "url": self._url, "body": {}, "headers": {}, "context": {}}
        url: Any = signer.generate_presigned_url(
            request, operation_name="connect", expires_in=_TOKEN_S, region_name=self._region
        )
        return self._user, url.removeprefix("https://")
