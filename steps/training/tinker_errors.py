"""A failure of Tinker's SDK -> whose it was: the user's, or the world's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import tinker
from tinker.lib.retryable_exception import RetryableException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, StepError, one_line

log = logging.getLogger(__name__)
_MOST = 500
_KEY = (401, 403)
_BILLING = 402
_PASSING = (408, 409, 410, 429)
_FAILURES = (tinker.TinkerError, RetryableException, TimeoutError, ValueError)


@contextmanager
def failure_of(what: str, field: str, *, passed_over: bool = False) -> Iterator[None]:
    """Tinker was asked ``what``, which ``field`` decides. ``passed_over``: a failure is only logged.

    Raises ConfigError, InfraError. The SDK has retried what may pass: requests for minutes, results until a timeout. A
    result that the service lost (410) is not asked for again by a training client: the step begins anew.
    """
    try:
        yield
    except _FAILURES as error:
        if not passed_over:
            raise step_error(error, what, field) from error
        log.warning("Tinker was asked %s: %s", what, error)


def step_error(error: Exception, what: str, field: str) -> StepError:
    """The failure as the exit code knows it."""
    reason = one_line(f"Tinker was asked {what}: {error or type(error).__name__}", _MOST)
    if isinstance(error, tinker.RequestFailedError):
        is_users = str(error.category).lower().endswith("user")
        return ConfigError(reason, field=field) if is_users else InfraError(FailureClass.MODEL, reason)
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    is_malformed_key = "api_key" in str(error) and not isinstance(error, tinker.APIStatusError)  # nothing was sent
    if status in _KEY or is_malformed_key:
        return ConfigError(reason, field="TINKER_API_KEY", failure_class=FailureClass.MODEL_ACCESS)
    if status == _BILLING:
        return InfraError(FailureClass.MODEL_ACCESS, reason)
    if isinstance(error, tinker.APIStatusError) and 400 <= error.status_code < 500 and status not in _PASSING:
        return ConfigError(reason, field=field)
    return InfraError(FailureClass.MODEL, reason)
