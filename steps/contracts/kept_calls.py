"""Calls of a model that were answered, kept as they come: a further try of the same solve does not ask them again."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import AwareDatetime, PlainSerializer, PlainValidator

from swe_argo.steps.contracts.record import AnyText, Part, to_json
from swe_argo.steps.contracts.trajectory import Metrics, Observation, Result, StopReason, ToolCall, Turn, Usage

FOLDER = "answered_calls"
"""In the folder of a try: files of lines, one for each call, named by the process that wrote them and in their order.
"""


def _unpack(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - pydantic turns ValueError into its own error
    try:
        return zlib.decompress(base64.b64decode(value, validate=True))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _pack(value: bytes) -> str:
    return base64.b64encode(zlib.compress(value, 6)).decode()


Packed = Annotated[bytes, PlainValidator(_unpack), PlainSerializer(_pack, return_type=str)]
"""Bytes; in JSON compressed (zlib) and in base64."""


class KeptToolCall(Part):
    """A call of a tool as the model wrote it."""

    id: str
    name: str
    arguments: AnyText

    def as_tool_call(self) -> ToolCall:
        """As a turn has it; where the arguments are no JSON object, they are one argument without a name."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            arguments = self.arguments
        named = arguments if isinstance(arguments, dict) else {"": arguments}
        return ToolCall(tool_call_id=self.id, function_name=self.name, arguments=named)


class KeptForwarded(Part):
    """What an agent program was answered, byte for byte."""

    status: int
    headers: dict[str, str]
    body: Packed
    tokens: Packed = b""
    """JSON: the metrics' prompt_token_ids, completion_token_ids and logprobs, which stand here alone; empty where the
    endpoint told none."""
    name: str = ""
    """By which later calls refer to it, where it has tokens."""
    extends: str = ""
    """The call before it, by its name, whose prompt and answer begin with the same ids; empty for none."""
    shared_ids: int = 0
    """How many of those: they lead the prompt, and do not stand in ``tokens``."""


class KeptCall(Part):
    """One call, and what the agent was shown between the one before and this.

    Those of our own agents are in the order in which they were asked. Those of agent programs (``forwarded``) are in
    the order of their answers, several at a time, and what is shown is in the next request alone.
    """

    try_name: str
    """Of the process that asked."""
    attempt: int
    """Of the solve's own, from 1 (iterative mode)."""
    starts_over: bool = False
    """What stands before it of this attempt and of later ones is of no use: the actions came out otherwise."""
    request: str
    """sha256 of what was asked: model, messages, tools, temperature, stop words; of a program's request of all that
    matters to its answer, without what varies from one run to the next."""
    shown: list[AnyText | None] = []
    """What came of the actions since the call before, as the agent saw it."""
    text: AnyText = ""
    reasoning: AnyText = ""
    calls: list[KeptToolCall] = []
    message: dict[str, Any] = {}
    metrics: Metrics | None = None
    ended: StopReason | None = None
    """Where the endpoint answered that it does not go on: a refusal, a conversation that is too long."""
    detail: AnyText = ""
    forwarded: KeptForwarded | None = None
    """Of an agent program's calls."""
    usage: Usage
    """Of the attempt so far."""
    spent: Usage
    """Of the process that asked, so far."""
    lost_s: float
    """Seconds of the attempt so far that the endpoint wasted."""
    seconds: float
    """That the agent had worked."""
    at: AwareDatetime

    def to_line(self) -> bytes:
        """One line of JSON, ASCII only, so that any text survives."""
        return (to_json(self.model_dump(mode="json", exclude_defaults=True), separators=(",", ":")) + "\n").encode()

    def as_turn(self, number: int = 1, shown: Sequence[str | None] = ()) -> Turn:
        """The answer as a turn of that number, without the ids of its tokens. ``shown``: what came of its calls."""
        ids: list[str | None] = [call.id for call in self.calls]
        ids += [None] * (len(shown) - len(ids))
        results = [Result(source_call_id=name, content=content) for name, content in zip(ids, shown, strict=False)]
        bare = dict.fromkeys(("prompt_token_ids", "completion_token_ids", "logprobs"))
        return Turn(
            step_id=number,
            timestamp=self.at.isoformat(timespec="milliseconds"),
            source="agent",
            message=self.text,
            reasoning_content=self.reasoning or None,
            tool_calls=[call.as_tool_call() for call in self.calls] or None,
            observation=Observation(results=results) if results else None,
            metrics=self.metrics.model_copy(update=bare) if self.metrics else None,
        )


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
    """What the process of that name had spent when it kept its last call; those that it took over are others'.

    Answers that come at once may be kept in another order than they were counted in.
    """
    own = (call.spent for call in calls if call.try_name == name)
    return max(own, key=lambda spent: spent.requests, default=Usage())


def calls_place(folder: str, writer: str) -> str:
    """What the files of a process are called in the unit's folder, up to their numbers. ``folder``: of its try."""
    return f"tries/{folder}/{FOLDER}/{writer}"
