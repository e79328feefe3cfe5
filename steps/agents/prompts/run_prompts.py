"""Prompts of a run, read and checked against every instance by plan, and stored for resuming."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families import rows


def read_instruction(spec: AgentSpec, chosen: list[dict[str, Any]], before: RunFile | None) -> tuple[str, list[str]]:
    """Return the text of the agent's template, "" if it has none, and notices about it.

    A resumed run (``before``, else None) keeps its original text, as another version of this project may have changed
    it. Raises ConfigError if the template cannot be read, fails on an instance, or is a file that changed since.
    """
    if not agent_of(spec).asks_model and spec.instruction_template is None:
        return "", []
    from swe_argo.steps.agents.prompts import templates

    text = templates.template_source(spec)
    if before is not None and before.instruction != text:
        if spec.instruction_template is not None and not templates.is_bundled(spec.instruction_template):
            raise ConfigError(
                f"{spec.instruction_template} changed since run {before.run_id!r} began; use another run id",
                field=templates.FIELD,
            )
        text = before.instruction
    if not text and spec.instruction_template is None:
        return "", []
    return text, templates.check(text, spec, (rows.to_instance(row, spec.hints) for row in chosen))


def read_scaffold_words(spec: AgentSpec) -> tuple[str, list[str]]:
    """Return the text of the file with the scaffold's wording, "" if there is none, and notices about it.

    Raises ConfigError if it cannot be read, or contains names that the scaffold does not have.
    """
    if spec.scaffold_words is None:
        return "", []
    from swe_argo.steps.agents.prompts import scaffold_text
    from swe_argo.steps.agents.tools.toolsets import toolset

    text = scaffold_text.read(spec)
    return text, scaffold_text.check_wording(text, spec.scaffold_words, toolset(spec.name, spec.scaffold_fidelity))
