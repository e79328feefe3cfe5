"""Definition of a tool: its description for the model, its effect on a sandbox, and its kind of observation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from swe_argo.steps.agents.tools.result import ToolResult
from swe_argo.steps.agents.tools.session import Session

Arguments = dict[str, Any]
ParameterType = Literal["string", "integer", "number", "boolean", "array"]
"""JSON schema's type names; arrays are of integers."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool."""

    name: str
    description: str
    type: ParameterType = "string"
    required: bool = False
    enum: tuple[str, ...] = ()
    example: str = ""
    """Example value for corrections."""
    whole_file: bool = False
    """Whether the value's last newline belongs to it in text format."""

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the parameter's JSON schema."""
        schema: dict[str, Any] = {"type": self.type, "description": self.description}
        if self.enum:
            schema["enum"] = list(self.enum)
        if self.type == "array":
            schema["items"] = {"type": "integer"}
        return schema


@dataclass(frozen=True)
class Tool:
    """A tool. ``act`` raises only what Sandbox raises; the agent's own errors become a ToolResult."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    act: Callable[[Arguments, Session], ToolResult]
    kind: Literal["shell", "edit", "search", "note", "end"]
    lenient: bool = False
    """Whether unknown arguments are ignored."""

    @property
    def ends(self) -> bool:
        """Return whether calling the tool ends the agent's work. Such a call is accepted whatever its arguments."""
        return self.kind == "end"

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        """Return the parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the tool's arguments."""
        return {
            "type": "object",
            "properties": {parameter.name: parameter.schema for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.required],
        }

    @cached_property
    def definition(self) -> dict[str, Any]:
        """Return the tool's definition for function calling."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}
