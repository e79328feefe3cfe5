"""What an answer of a model comes to: a call that can be made, or what is wrong with it and how to do better."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from swe_argo.steps.agents.tools.tool import Tool
from swe_argo.steps.agents.tools.toolsets import Toolset
from swe_argo.steps.models.reply import Message, Reply, ToolDefinition

BLANK = "(empty)"
"""Stands for an answer without anything: some endpoints take no empty messages."""


@dataclass(frozen=True)
class Rules:
    """What counts of an answer with more than one call, or less than a whole one: each project has rules of its own."""

    calls: Literal["one", "first", "all"] = "one"
    """Which function calls of an answer are made; with ``one`` an answer with several is malformed."""
    keeps_rest: bool = True
    """In text: whether what stands behind the first block stays in the conversation."""
    stop: tuple[str, ...] = ()
    """In text: what the endpoint is told to end an answer at; a block that ends there is whole."""


class Problem(StrEnum):
    """What is wrong with an answer."""

    EMPTY = "empty"
    NO_CALL = "no_call"
    TWO_CALLS = "two_calls"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    INVALID_JSON = "invalid_json"
    UNCLOSED_TAG = "unclosed_tag"


@dataclass(frozen=True)
class ParsedCall:
    """A call that can be made: ``arguments`` have the types of the tool's parameters."""

    tool: Tool
    arguments: dict[str, Any]
    call_id: str = ""
    thought: str = ""
    """The text around the call."""


@dataclass(frozen=True)
class Malformed:
    """An answer without a call that can be made; ``correction`` is what the model is told."""

    problem: Problem
    correction: str


class CallFormat(Protocol):
    """How calls are written, by the model and to it."""

    @property
    def name(self) -> Literal["text", "function_calling"]:
        """As trajectories have it."""

    @property
    def stop(self) -> list[str] | None:
        """What the endpoint is told to end an answer at."""

    def parse(self, reply: Reply, toolset: Toolset) -> list[ParsedCall] | Malformed:
        """The calls of an answer that count, at least one. Raises nothing, whatever the answer is."""

    def instructions(self, toolset: Toolset) -> str:
        """What the system prompt must say of the tools and how to call them; empty in function calling."""

    def definitions(self, toolset: Toolset) -> list[ToolDefinition] | None:
        """What function calling is told of the tools; None in text."""

    def to_message(self, reply: Reply) -> Message:
        """The answer as it goes back into the conversation: every endpoint takes it, malformed as it may be."""

    def answer(self, reply: Reply, texts: list[str]) -> list[Message]:
        """What follows the answer in the conversation: what came of its calls, or a correction."""
