"""What a scaffold's model is told before its first answer: who it is, its tools, and what it is to do."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.agents.calls import call_format
from swe_argo.steps.agents.calls.parse_result import CallFormat
from swe_argo.steps.agents.prompts import scaffold_text, templates
from swe_argo.steps.agents.scaffolds import SCAFFOLDS, Scaffold
from swe_argo.steps.agents.tools.toolsets import Toolset, toolset
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Instance


@dataclass(frozen=True)
class Opening:
    """The tools in the words that the model meets, and the first two messages."""

    tools: Toolset
    finish: str
    """The tool that ends the work."""
    format: CallFormat
    system: str
    instruction: str


def open_scaffold(spec: AgentSpec, instance: Instance, instruction: str, words: str, *, fn_calling: bool) -> Opening:
    """``instruction``: text of the prompt template; ``words``: of the file with the scaffold's words, or empty.

    Raises ConfigError where the template fails on the instance.
    """
    scaffold = SCAFFOLDS[spec.name]
    own = toolset(scaffold.name, spec.scaffold_fidelity, instance.workdir)
    tools, own_system = scaffold_text.word_tool_texts(own, words)
    finish = next(tool.name for tool in tools.tools if tool.ends)
    calls = call_format(fn_calling, scaffold.rules)
    described = calls.instructions(tools)
    return Opening(
        tools,
        finish,
        calls,
        templates.system_prompt(scaffold.name, finish, described, own_system, instance.workdir),
        templates.render(instruction, instance) + count_steps(scaffold, spec.told_after),
    )


def count_steps(scaffold: Scaffold, remaining: int) -> str:
    """What stands behind a message to it: how many steps are left, where its project says so."""
    return f"\nSteps Remaining: {max(remaining, 0)}" if scaffold.counts_steps else ""
