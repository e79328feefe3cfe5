"""What a model is told of an answer without a call that can be made: what was wrong, and what a right one is like."""

from __future__ import annotations

from difflib import get_close_matches

from swe_argo.steps.agents.calls.parse_result import Malformed, Problem
from swe_argo.steps.agents.tools.tool import Tool
from swe_argo.steps.agents.tools.toolsets import Toolset
from swe_argo.steps.models.reply import Reply

_EXAMPLES = {"cmd": "ls -la", "command": "ls -la", "search_term": "def main", "thought": "..."}


def make_correction(problem: Problem, what: str, how: str, reply: Reply) -> Malformed:
    """A correction: ``what`` was wrong, ``how`` it is done."""
    extra = reply.metrics.extra
    cut = ""
    if extra is not None and extra.finish_reason == "length":
        cut = " Your answer was cut off because it was too long: answer in fewer words, or write long files in parts."
    return Malformed(problem, f"{what}{cut} Nothing was done.\n\n{how}")


def describe_empty_answer(reply: Reply) -> str:
    """The sentence for an answer without anything."""
    return "Your answer was empty" + ("; what you think is no part of it." if reply.reasoning.strip() else ".")


def describe_unknown_tool(name: str, toolset: Toolset) -> str:
    """The sentence for a tool that does not exist."""
    names = [tool.name for tool in toolset.tools]
    near = get_close_matches(name, [*names, *toolset.aliases], 1)
    hint = f" Did you mean `{toolset.aliases.get(near[0], near[0])}`?" if near else ""
    quoted = name if len(name) <= 60 else name[:60] + "..."
    return f"There is no tool `{quoted}`.{hint} The tools are {', '.join(f'`{each}`' for each in names)}."


def example_arguments(tool: Tool) -> dict[str, str]:
    """Arguments of a right call of a tool: its required ones."""
    return {
        parameter.name: parameter.enum[0]
        if parameter.enum
        else parameter.example or _EXAMPLES.get(parameter.name, "...")
        for parameter in tool.parameters
        if parameter.required
    }


def example_tool(toolset: Toolset) -> Tool:
    """The tool that examples show where no other was meant: the shell."""
    return next(tool for tool in toolset.tools if tool.kind == "shell")


def describe_way_to_finish(toolset: Toolset) -> str:
    """How the work is ended: a model that thinks it is done often just says so."""
    tool = next(tool for tool in toolset.tools if tool.ends)
    return f"If the work is done, call `{tool.name}`."
