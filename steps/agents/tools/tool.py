"""A tool as a value: what a model is told of it, what it does to a machine, and what is seen of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from swe_argo.steps.agents.tools.result import ToolResult
from swe_argo.steps.agents.tools.session import Session

Arguments = dict[str, Any]
ParameterType = Literal["string", "integer", "number", "boolean", "array"]
"""JSON schema's names; an array is one of integers."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool."""

    name: str
    description: str
    type: ParameterType = "string"
    required: bool = False
    enum: tuple[str, ...] = ()
    example: str = ""
    """A right value, for whoever gave none."""
    whole_file: bool = False
    """In text format the value's last newline belongs to it."""

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        schema: dict[str, Any] = {"type": self.type, "description": self.description}
        if self.enum:
            schema["enum"] = list(self.enum)
        if self.type == "array":
            schema["items"] = {"type": "integer"}
        return schema


@dataclass(frozen=True)
class Tool:
    """A tool. ``act`` raises only what Sandbox raises: what goes wrong by the agent's doing is a ToolResult."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    act: Callable[[Arguments, Session], ToolResult]
    kind: Literal["shell", "edit", "search", "note", "end"]
    lenient: bool = False
    """Whether arguments that it has no parameter for may be given, and mean nothing."""

    @property
    def ends(self) -> bool:
        """Whether calling it ends the agent's work. What such a call says beside is never a reason to refuse it."""
        return self.kind == "end"

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return {
            "type": "object",
            "properties": {parameter.name: parameter.schema for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.required],
        }

    @cached_property
    def definition(self) -> dict[str, Any]:
        """What function calling is told of it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}
