"""One tree of errors for the whole of moera.

    MoeraError
    +-- InvalidArgumentError      the request is malformed: do not retry
    |   +-- ConfigError           a configuration file or flag is wrong
    +-- NotFoundError             the named thing does not exist (any more)
    +-- AlreadyExistsError        the id is taken by something else
    +-- FailedPreconditionError   right request, wrong state
    +-- AbortedError              fenced off: the lease or lineage is lost
    +-- ResourceExhaustedError    back-pressure: retry after `retry_after_s`
    +-- UnavailableError          the server is not there (yet): retry
    +-- DeadlineError             the deadline passed
    +-- DataLossError             bytes do not match their digest
    +-- UnimplementedError        the server does not know this call
    +-- InternalError             a bug: the message names it

Domain code raises these; `moera.rpc` maps them to gRPC status codes and back, in one place.
"""


class MoeraError(Exception):
    """Base of every error that moera raises on purpose. The message says what to do."""


class InvalidArgumentError(MoeraError, ValueError):
    """The request is malformed; sending it again cannot help."""


class ConfigError(InvalidArgumentError):
    """A configuration value is wrong; the message names the key and the fix."""


class NotFoundError(MoeraError, LookupError):
    """The named thing does not exist, or not any more."""


class AlreadyExistsError(MoeraError):
    """The id is taken by something else."""


class FailedPreconditionError(MoeraError):
    """The request is right but the state is not."""


class AbortedError(MoeraError):
    """The caller's lease or lineage was lost to another; stop working on it."""


class ResourceExhaustedError(MoeraError):
    """Back-pressure: try again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnavailableError(MoeraError, ConnectionError):
    """The server is not there, or not yet."""


class DeadlineError(MoeraError, TimeoutError):
    """The deadline passed before an answer came."""


class DataLossError(MoeraError):
    """Bytes do not match their digest; the old data stays in use."""


class UnimplementedError(MoeraError):
    """The server does not know this call."""


class InternalError(MoeraError):
    """A bug in the server; its log has the traceback."""
