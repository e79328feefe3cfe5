"""Events from an agent program behind the model gateway, and answers to its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

GatewayLimit = Literal["output", "home", "waiting"]


@dataclass(frozen=True)
class GatewayRequest:
    """A request of the agent, whose client waits for an answer to ``number`` or is gone after Withdrawn."""

    number: int
    method: str
    path: str
    """Path with its query."""
    headers: dict[str, str]
    """Names in lower case; repeated headers are joined with commas."""
    body: bytes


@dataclass(frozen=True)
class GatewayResponse:
    """A complete answer for the agent's client; its length header is added."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Withdrawn:
    """Disconnection of a request's client. The same request, sent again, gets the answer to the first one."""

    number: int


@dataclass(frozen=True)
class Printed:
    """Output of the agent on ``stream`` (stdout or stderr), which follows ``skipped`` omitted bytes."""

    stream: str
    data: bytes
    skipped: int = 0


@dataclass(frozen=True)
class Refused:
    """A request that the gateway answered itself with ``status``; reported for the first twenty only."""

    method: str
    path: str
    status: int


@dataclass(frozen=True)
class Ended:
    """Last event: the agent and all processes that it started have ended.

    ``exit_code`` is None if unknown: the gateway was killed (``lost``), printed more than a job may (``flooded``) or
    printed invalid frames (``forged`` describes them), all of which only the agent can cause; or it did not start
    (``failure`` is the reason). ``killed``: ended on request. ``exceeded_limit``: ended by the gateway because of
    output_bytes, home_bytes or idle_s (GatewayLimits). ``refused``: number of requests that the gateway answered
    itself, by status.
    """

    exit_code: int | None
    killed: bool = False
    exceeded_limit: GatewayLimit | None = None
    lost: bool = False
    flooded: bool = False
    forged: str = ""
    failure: str = ""
    refused: dict[int, int] = field(default_factory=dict)


GatewayEvent = GatewayRequest | Withdrawn | Printed | Refused | Ended
