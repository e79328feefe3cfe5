"""Translation of errors from Tinker's SDK into ConfigError or InfraError."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import tinker
from tinker.lib.retryable_exception import RetryableException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, StepError, one_line

log = logging.getLogger(__name__)
_MAX_CHARACTERS = 500
"""Maximum characters of a message."""
_KEY_STATUSES = (401, 403)
"""Statuses of a refused key."""
_BILLING = 402
_TEMPORARY_STATUSES = (408, 409, 410, 429)
"""4xx statuses that are not the user's error."""
_FAILURES = (tinker.TinkerError, RetryableException, TimeoutError, ValueError)
"""Errors that the SDK raises."""


@contextmanager
def convert_errors(request: str, field: str, *, only_log: bool = False) -> Iterator[None]:
    """Convert an error of the block to ConfigError or InfraError.

    ``request`` names the request in the message ("to save the weights"), ``field`` the setting to change if Tinker
    refuses it. ``only_log``: failures are only logged. The SDK has retried already: requests for minutes, results
    until a timeout. A training client cannot request a result again that the service lost (410): the step starts again.
    """
    try:
        yield
    except _FAILURES as error:
        if not only_log:
            raise step_error(error, request, field) from error
        log.warning("request to Tinker %s: %s", request, error)


def step_error(error: Exception, request: str, field: str) -> StepError:
    """Return the error with its class, which determines the exit code."""
    reason = one_line(f"request to Tinker {request} failed: {error or type(error).__name__}", _MAX_CHARACTERS)
    if isinstance(error, tinker.RequestFailedError):
        # Tinker's category says whose error it is: the user's, the server's, or unknown.
        is_users = str(error.category).lower().endswith("user")
        return ConfigError(reason, field=field) if is_users else InfraError(FailureClass.MODEL, reason)
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    is_malformed_key = "api_key" in str(error) and not isinstance(error, tinker.APIStatusError)  # nothing was sent
    if status in _KEY_STATUSES or is_malformed_key:
        return ConfigError(reason, field="TINKER_API_KEY", failure_class=FailureClass.MODEL_ACCESS)
    if status == _BILLING:
        return InfraError(FailureClass.MODEL_ACCESS, reason)
    if (
        isinstance(error, tinker.APIStatusError)
        and 400 <= error.status_code < 500
        and status not in _TEMPORARY_STATUSES
    ):
        return ConfigError(reason, field=field)
    return InfraError(FailureClass.MODEL, reason)
