"""The words that a run is planned with: read, checked against every instance, kept for its resumption."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families import rows


def read_instruction(spec: AgentSpec, chosen: list[dict[str, Any]], before: RunFile | None) -> tuple[str, list[str]]:
    """The text of the agent's template, empty where it has none, and what a person should know of it.

    A run goes on with the words it began with: another version of this project may have others of its own. Raises
    ConfigError where the template cannot be read, or fails on an instance, or is a file that changed since.
    """
    if not agent_of(spec).asks_model and spec.instruction_template is None:
        return "", []
    from swe_argo.steps.agents.prompts import templates

    text = templates.template_source(spec)
    if before is not None and before.instruction != text:
        if spec.instruction_template is not None and not templates.is_own(spec.instruction_template):
            raise ConfigError(
                f"{spec.instruction_template} changed since run {before.run_id!r} began; use another run id",
                field=templates.FIELD,
            )
        text = before.instruction
    if not text and spec.instruction_template is None:
        return "", []
    return text, templates.check(text, spec, (rows.to_instance(row, spec.hints) for row in chosen))


def read_scaffold_words(spec: AgentSpec) -> tuple[str, list[str]]:
    """The text of the file with the scaffold's words, empty where there is none, and what a person should know of it.

    Raises ConfigError where it cannot be read, or says what the scaffold has no place for.
    """
    if spec.scaffold_words is None:
        return "", []
    from swe_argo.steps.agents.prompts import scaffold_text
    from swe_argo.steps.agents.tools.toolsets import toolset

    text = scaffold_text.read(spec)
    return text, scaffold_text.check(text, spec.scaffold_words, toolset(spec.name, spec.scaffold_fidelity))
