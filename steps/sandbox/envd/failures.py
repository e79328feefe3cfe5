"""The errors of E2B's SDK, and which of them are transient."""

from __future__ import annotations

import httpx
from connectrpc.errors import ConnectError
from e2b import (
    AuthenticationException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    TimeoutException,
)
from e2b.exceptions import SandboxNotRunningException, ServiceBusyException
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

FAILURES = (
    SandboxException,
    AuthenticationException,
    ServiceBusyException,
    httpx.HTTPError,
    ConnectError,
    OSError,
    RuntimeError,
)
"""Errors of the SDK if the service or the connection fails; RuntimeError: the client cannot start."""
GONE = (SandboxNotFoundException, SandboxNotRunningException)
"""Errors of the SDK for a sandbox that does not exist any more."""
_SERVER_ERRORS = 500


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed: a full or busy service, a timeout, 5xx, or a broken connection."""
    if isinstance(error, (AuthenticationException, NotFoundException, SandboxNotRunningException)):
        return False
    if isinstance(error, (RateLimitException, ServiceBusyException, TimeoutException)):
        return True
    if isinstance(error, SandboxException):
        status = getattr(error, "status_code", None)
        return status is not None and status >= _SERVER_ERRORS
    return isinstance(error, (httpx.TransportError, ConnectError, OSError))


def retrying(attempts: int = 6, first_s: float = 0.25, longest_s: float = 8.0) -> Retrying:
    """Return a retry loop over transient failures that raises the last one."""
    return Retrying(
        stop=stop_after_attempt(attempts),
        wait=wait_exponential(multiplier=first_s, max=longest_s) + wait_random(0, first_s),
        retry=retry_if_exception(is_transient),
        reraise=True,
    )
