"""What comes out of a sandbox in which an agent program runs behind the gate, and the answer that goes in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Over = Literal["output", "home", "waiting"]


@dataclass(frozen=True)
class GateRequest:
    """A request of the agent. Its client waits until ``number`` is answered, or is told by Withdrawn to be gone."""

    number: int
    method: str
    path: str
    """With its query."""
    headers: dict[str, str]
    """Names in lower case; of several of one name, all with commas between."""
    body: bytes


@dataclass(frozen=True)
class GateAnswer:
    """What its client gets, whole; the length is added."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Withdrawn:
    """The client of a request has hung up. The same request, sent once more, gets the answer to the first one."""

    number: int


@dataclass(frozen=True)
class Printed:
    """What the agent wrote to ``stream`` (stdout or stderr), ``skipped`` bytes before it left out."""

    stream: str
    data: bytes
    skipped: int = 0


@dataclass(frozen=True)
class Refused:
    """A request that the gate answered itself with ``status``; only the first twenty are told so."""

    method: str
    path: str
    status: int


@dataclass(frozen=True)
class Ended:
    """The agent has ended, and all that it started; nothing comes after it.

    ``exit_code`` is None where nobody knows it: the gate was killed (``lost``), wrote more than a job may print
    (``flooded``) or what no gate of ours writes (``forged`` says what), all of which only the agent can bring about; or
    did not start (``failure`` says why). ``killed``: it was asked to end. ``over``: the gate ended it, since it printed
    more than output_bytes, its HOME took more than home_bytes, or it did nothing for idle_s (GateLimits).
    ``refused``: how many requests the gate answered itself, by status.
    """

    exit_code: int | None
    killed: bool = False
    over: Over | None = None
    lost: bool = False
    flooded: bool = False
    forged: str = ""
    failure: str = ""
    refused: dict[int, int] = field(default_factory=dict)


GateEvent = GateRequest | Withdrawn | Printed | Refused | Ended
