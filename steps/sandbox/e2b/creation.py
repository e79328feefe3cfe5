"""Requests for new sandboxes: rate limiting, and retries when the service is full or busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from e2b import RateLimitException
from e2b.exceptions import ServiceBusyException

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.e2b.creation_rate import CreationRate
from swe_argo.steps.sandbox.e2b.service import account_id
from swe_argo.steps.sandbox.envd.failures import FAILURES, is_transient
from swe_argo.steps.settings import settings

T = TypeVar("T")

FULL_PATIENCE_S = 1500.0
"""Seconds to wait while all of the plan's sandboxes are in use; less than a step may wait for its sandbox."""
FULL_PAUSE_S = 2.0
"""Pause of all processes after a 429, unless the service gives a duration."""
_FAULTS = 8
"""Failures of other kinds after which the last one is raised."""
_LONGEST_S = 30.0
"""Maximum seconds between retries, unless the service asks for more."""


class RetryLaterError(Exception):
    """The service may accept the same request after ``pause_s`` seconds (0: it named no time)."""

    def __init__(self, refusal: Exception, pause_s: float) -> None:
        super().__init__(refusal, pause_s)
        self.refusal = refusal
        self.pause_s = pause_s


def creation_rate(spec: SandboxSpec) -> CreationRate:
    """Return the account's rate limiter on this machine. Raises ConfigError without a key."""
    file = settings().home_folder / "e2b" / f"creations-{account_id()}"
    return CreationRate(file, spec.e2b.creations_per_second)


def request_until_accepted(
    request: Callable[[], T], rate: CreationRate, *, room_s: float = FULL_PATIENCE_S, first_s: float = 0.5
) -> T:
    """Call ``request``, within the rate, until the service accepts; return its result.

    A 429 pauses all processes and is retried for ``room_s`` seconds; other transient failures are retried a few times,
    after ``first_s`` seconds at first. Raises the SDK's last error, ConfigError as ``CreationRate.turn``.
    """
    until, faults = time.monotonic() + room_s, 0
    while True:
        try:
            with rate.turn():
                created = request()
        except RetryLaterError as later:
            error, pause_s = later.refusal, later.pause_s
            if isinstance(error, RateLimitException):
                if time.monotonic() > until:
                    raise error from None
                rate.refusals.refuse(max(pause_s, FULL_PAUSE_S), str(error))
                continue
        except FAILURES as failure:
            if not is_transient(failure) or isinstance(failure, (RateLimitException, ServiceBusyException)):
                raise
            error, pause_s = failure, 0.0
        else:
            rate.refusals.accept()
            return created
        faults += 1
        if faults >= _FAULTS:
            raise error
        rate.sleep(max(pause_s, min(first_s * 2 ** (faults - 1), _LONGEST_S)))


def has_refused(error: BaseException) -> bool:
    """Return whether the service refused the request, so that no sandbox exists."""
    return isinstance(error, (*FAILURES, StepError)) and not is_transient(error)
