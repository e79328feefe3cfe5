"""Calls of a model that were answered, kept as they come: a further try of the same solve does not ask them again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from steps.contracts.record import AnyText, Part
from steps.contracts.trajectory import Metrics, StopReason, Usage

FOLDER = "answered_calls"
"""In the folder of a try: files of lines, one for each call, named by the process that wrote them and in their order.
"""


class KeptToolCall(Part):
    """A call of a tool as the model wrote it."""

    id: str
    name: str
    arguments: AnyText


class KeptCall(Part):
    """One call, and what the agent was shown between the one before and this."""

    try_name: str
    """Of the process that asked."""
    attempt: int
    """Of the solve's own, from 1 (iterative mode)."""
    starts_over: bool = False
    """What stands before it of this attempt and of later ones is of no use: the actions came out otherwise."""
    request: str
    """sha256 of what was asked: model, messages, tools, temperature, stop words."""
    shown: list[AnyText | None]
    """What came of the actions since the call before, as the agent saw it."""
    text: AnyText = ""
    reasoning: AnyText = ""
    calls: list[KeptToolCall] = []
    message: dict[str, Any] = {}
    metrics: Metrics | None = None
    ended: StopReason | None = None
    """Where the endpoint answered that it does not go on: a refusal, a conversation that is too long."""
    detail: AnyText = ""
    usage: Usage
    """Of the attempt so far."""
    spent: Usage
    """Of the process that asked, so far."""
    lost_s: float
    """Seconds of the attempt so far that the endpoint wasted."""
    seconds: float
    """That the agent had worked."""
    at: datetime

    def to_line(self) -> bytes:
        """One line of JSON, ASCII only, so that any text survives."""
        return (json.dumps(self.model_dump(mode="json", exclude_defaults=True), separators=(",", ":")) + "\n").encode()


def read_lines(data: bytes) -> list[KeptCall]:
    """The calls of a file. Raises ValueError where it is none."""
    return [KeptCall.model_validate(json.loads(line)) for line in data.splitlines()]


def calls_that_count(calls: Iterable[KeptCall]) -> list[KeptCall]:
    """Without those that a later one makes useless by starting over."""
    counting: list[KeptCall] = []
    for call in calls:
        if call.starts_over:
            counting = [earlier for earlier in counting if earlier.attempt < call.attempt]
        counting.append(call)
    return counting


def spent_by(name: str, calls: Iterable[KeptCall]) -> Usage:
    """What the process of that name had spent when it kept its last call; those that it took over are others'."""
    return next((call.spent for call in reversed(list(calls)) if call.try_name == name), Usage())


def calls_place(folder: str, writer: str) -> str:
    """What the files of a process are called in the unit's folder, up to their numbers. ``folder``: of its try."""
    return f"tries/{folder}/{FOLDER}/{writer}"
