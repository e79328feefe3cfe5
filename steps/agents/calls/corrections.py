"""Corrections for answers without a valid call: the fault, and an example of a correct answer."""

from __future__ import annotations

from difflib import get_close_matches

from swe_argo.steps.agents.calls.parse_result import Malformed, Problem
from swe_argo.steps.agents.tools.tool import Tool
from swe_argo.steps.agents.tools.toolsets import Toolset
from swe_argo.steps.models.reply import Reply

_EXAMPLES = {"cmd": "ls -la", "command": "ls -la", "search_term": "def main", "thought": "..."}


def make_correction(problem: Problem, fault: str, correct_form: str, reply: Reply) -> Malformed:
    """Return the correction: the fault, then the correct form."""
    extra = reply.metrics.extra
    cut = ""
    if extra is not None and extra.finish_reason == "length":
        cut = " Your answer was cut off because it was too long: answer in fewer words, or write long files in parts."
    return Malformed(problem, f"{fault}{cut} Nothing was done.\n\n{correct_form}")


def describe_empty_answer(reply: Reply) -> str:
    """Return the sentence for an empty answer."""
    return "Your answer was empty" + ("; what you think is no part of it." if reply.reasoning.strip() else ".")


def describe_unknown_tool(name: str, toolset: Toolset) -> str:
    """Return the sentence for an unknown tool."""
    names = [tool.name for tool in toolset.tools]
    near = get_close_matches(name, [*names, *toolset.aliases], 1)
    hint = f" Did you mean `{toolset.aliases.get(near[0], near[0])}`?" if near else ""
    quoted = name if len(name) <= 60 else name[:60] + "..."
    return f"There is no tool `{quoted}`.{hint} The tools are {', '.join(f'`{candidate}`' for candidate in names)}."


def example_arguments(tool: Tool) -> dict[str, str]:
    """Return example arguments for a tool's required parameters."""
    return {
        parameter.name: parameter.enum[0]
        if parameter.enum
        else parameter.example or _EXAMPLES.get(parameter.name, "...")
        for parameter in tool.parameters
        if parameter.required
    }


def example_tool(toolset: Toolset) -> Tool:
    """Return the default tool for examples: the shell."""
    return next(tool for tool in toolset.tools if tool.kind == "shell")


def describe_way_to_finish(toolset: Toolset) -> str:
    """Return the sentence on ending the work: a finished model often only says that it is finished."""
    tool = next(tool for tool in toolset.tools if tool.ends)
    return f"If the work is done, call `{tool.name}`."
