"""State of one model call: the request, and the result of its requests so far."""

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


class TransientError(Exception):
    """A failure that a retry may fix."""

    def __init__(
        self,
        message: str,
        requested_s: float | None = None,
        outcome: Exception | None = None,
        *,
        refusal: Refusal | None = None,
        foreign: bool = False,
    ) -> None:
        self.requested_s, self.refusal = requested_s, refusal  # seconds to wait, if the endpoint asks for a wait
        self.foreign = foreign
        """Whether the body was not the API's JSON."""
        self.outcome = outcome
        """The error to raise when retries are used up; by default a failure of the endpoint."""
        super().__init__(message)


class UnsupportedProtocolError(Exception):
    """The endpoint does not support the protocol of a request; the message quotes its response."""


@dataclass(frozen=True)
class Answered:
    """An answer of the endpoint with its usage: a reply, or the reason why the conversation cannot continue."""

    response: ModelResponse
    metrics: Metrics
    outcome: Reply | NoReplyError


@dataclass
class Call:
    """The state of a running call."""

    build_body: Callable[[], dict[str, Any]]
    """Builds the body of the next request, in the dialect learnt from the endpoint so far."""
    dialect: RequestDialect
    """Dialect of the request; it learns from refusals."""
    was_accepted: bool
    """Whether the endpoint accepted an earlier request of this conversation; a refusal is then about newer messages."""
    deadline: float = math.inf
    """Deadline in monotonic time."""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_probe: bool = False
    """Whether the call only tests if the endpoint supports this protocol."""
    requests: int = 0
    """Number of requests sent so far, including failed ones."""
    failures: int = 0
    """Number of failures that a retry may fix."""
    small_request_succeeded: bool = False
    """Whether a small request succeeded after a refusal without a clear reason. The next such refusal is final."""
    answering_s: float = 0.0
    """Duration of the answer, without the failures before it."""

    @property
    def remaining_s(self) -> float:
        """Return the seconds left until the deadline."""
        return self.deadline - time.monotonic()
