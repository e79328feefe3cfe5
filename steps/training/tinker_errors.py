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
_MOST = 500
_KEY = (401, 403)
_BILLING = 402
_PASSING = (408, 409, 410, 429)
_FAILURES = (tinker.TinkerError, RetryableException, TimeoutError, ValueError)


@contextmanager
def failure_of(what: str, field: str, *, passed_over: bool = False) -> Iterator[None]:
    """Raise ConfigError or InfraError for an error of the request ``what``, which depends on ``field``.

    ``passed_over``: failures are only logged. The SDK has retried already: requests for minutes, results until a
    timeout. A training client cannot request a result again that the service lost (410): the step starts again.
    """
    try:
        yield
    except _FAILURES as error:
        if not passed_over:
            raise step_error(error, what, field) from error
        log.warning("Tinker was asked %s: %s", what, error)


def step_error(error: Exception, what: str, field: str) -> StepError:
    """Return the error with its class, which determines the exit code."""
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
