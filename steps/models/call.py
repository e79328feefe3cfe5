"""One call of the model while it is made: what is asked, and what came of its requests so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swe_argo.steps.contracts.trajectory import Metrics
from swe_argo.steps.models.errors import Refusal
from swe_argo.steps.models.reply import NoReplyError, Reply
from swe_argo.steps.models.request_body import RequestDialect
from swe_argo.steps.models.response_body import ModelResponse


class PassingError(Exception):
    """What may be otherwise the next time."""

    def __init__(
        self,
        what: str,
        requested_s: float | None = None,
        outcome: Exception | None = None,
        *,
        refusal: Refusal | None = None,
        foreign: bool = False,
    ) -> None:
        self.requested_s, self.refusal = requested_s, refusal
        self.foreign = foreign
        """Whether the body was not the API's JSON."""
        self.outcome = outcome
        """What it comes to when it is not; by default a failure of the endpoint."""
        super().__init__(what)


class NotSpokenError(Exception):
    """Nothing at the endpoint speaks the protocol of a request; the message quotes what was said instead."""


@dataclass(frozen=True)
class Answered:
    """An answer of the endpoint, counted: with something to go on with, or with the reason why there is nothing."""

    response: ModelResponse
    metrics: Metrics
    outcome: Reply | NoReplyError


@dataclass
class Call:
    """A call while it is made."""

    write: Callable[[], dict[str, Any]]
    """The body of the next request, in the words that the endpoint is known to take by then."""
    wording: RequestDialect
    goes_on: bool
    """Whether the endpoint has taken such a request before: then what is wrong is what was said since."""
    until: float = math.inf
    """Monotonic time at which it must be over."""
    headers: Mapping[str, str] = field(default_factory=dict)
    probes: bool = False
    """Whether it is made to find out if the endpoint speaks this protocol at all."""
    requests: int = 0
    failures: int = 0
    """That may pass."""
    tested: bool = False
    """Whether it was refused in words that do not tell why, and the endpoint then took a small request: a second such
    refusal is for good."""
    answering_s: float = 0.0
    """What the answer took, without the failures before it."""

    @property
    def remaining_s(self) -> float:
        """Seconds that the call has left."""
        return self.until - time.monotonic()
