"""Recorded calls: answered model calls, stored as they come, so that a retry of the solve need not repeat them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, PlainSerializer, PlainValidator

from swe_argo.steps.contracts.record import AnyText, Part, to_json
from swe_argo.steps.contracts.trajectory import Metrics, Observation, Result, StopReason, ToolCall, Turn, Usage

FOLDER = "answered_calls"
"""Folder of a try with files of calls, one call per line, named after the process that wrote them and numbered."""


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
"""Bytes; in JSON compressed (zlib) and base64-encoded."""


class RecordedToolCall(Part):
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: AnyText

    def as_tool_call(self) -> ToolCall:
        """Return the call for a turn; arguments that are not a JSON object become one argument without a name."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            arguments = self.arguments
        by_name = arguments if isinstance(arguments, dict) else {"": arguments}
        return ToolCall(tool_call_id=self.id, function_name=self.name, arguments=by_name)


class RecordedForward(Part):
    """The response to an agent program, byte for byte."""

    status: int
    headers: dict[str, str]
    body: Packed
    tokens: Packed = b""
    """JSON of the metrics' prompt_token_ids, completion_token_ids and logprobs, which only this field has; empty if the
    endpoint reports none."""
    name: str = ""
    """Name by which later calls refer to it, if it has tokens."""
    extends: str = ""
    """Name of the previous call whose prompt and response start with the same ids; empty for none."""
    shared_ids: int = 0
    """Number of these ids: they lead the prompt, and are left out of ``tokens``."""


class RecordedCall(Part):
    """A model call, and the observations since the previous call.

    Calls of our own agents are in the order of their requests. Calls of agent programs (``forwarded``) may be
    concurrent: they are in the order of their responses, and only the next request has the observations.
    """

    try_name: str
    """Name of the try that made the call."""
    attempt: int
    """Attempt within the solve, from 1 (iterative mode)."""
    starts_over: bool = False
    """Whether earlier calls of this attempt and of later ones are void: the replayed actions had other results."""
    request: str
    """sha256 of the request: model, messages, tools, temperature, stop words. For an agent program everything that
    affects the response, without parts that vary between runs."""
    observations: list[AnyText | None] = Field([], alias="shown")
    """Observations since the previous call, as the agent saw them."""
    text: AnyText = ""
    reasoning: AnyText = ""
    calls: list[RecordedToolCall] = []
    message: dict[str, Any] = {}
    metrics: Metrics | None = None
    ended: StopReason | None = None
    """Stop reason, if the endpoint ended the conversation: a refusal, or a conversation that is too long."""
    detail: AnyText = ""
    forwarded: RecordedForward | None = None
    """The response, for an agent program's call."""
    usage: Usage
    """Usage of the attempt so far."""
    spent: Usage
    """Usage of the try that made the call, so far."""
    lost_s: float
    """Seconds that the endpoint wasted in the attempt so far."""
    seconds: float
    """Seconds that the agent had worked."""
    at: AwareDatetime

    def to_line(self) -> bytes:
        """Return one line of JSON in ASCII, so that any text survives."""
        return (to_json(self.model_dump(mode="json", exclude_defaults=True), separators=(",", ":")) + "\n").encode()

    def as_turn(self, number: int = 1, observations: Sequence[str | None] = ()) -> Turn:
        """Return the response as a turn, without token ids; ``observations`` are the results of its tool calls."""
        ids: list[str | None] = [call.id for call in self.calls]
        ids += [None] * (len(observations) - len(ids))
        results = [
            Result(source_call_id=name, content=content) for name, content in zip(ids, observations, strict=False)
        ]
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


def read_lines(data: bytes) -> list[RecordedCall]:
    """Return the calls of a file. Raises ValueError if it is invalid."""
    return [RecordedCall.model_validate(json.loads(line)) for line in data.splitlines()]


def effective_calls(calls: Iterable[RecordedCall]) -> list[RecordedCall]:
    """Return the calls without those that a later call made void by starting over."""
    effective: list[RecordedCall] = []
    for call in calls:
        if call.starts_over:
            effective = [earlier for earlier in effective if earlier.attempt < call.attempt]
        effective.append(call)
    return effective


def usage_of_try(name: str, calls: Iterable[RecordedCall]) -> Usage:
    """Return the usage of a try up to its last recorded call, without calls taken over.

    Concurrent responses may be recorded in another order than they were counted.
    """
    usages = (call.spent for call in calls if call.try_name == name)
    return max(usages, key=lambda usage: usage.requests, default=Usage())


def calls_prefix(folder: str, writer: str) -> str:
    """Return the prefix of a process's files (``writer``) in the unit's folder; ``folder`` is the folder of its try."""
    return f"tries/{folder}/{FOLDER}/{writer}"
