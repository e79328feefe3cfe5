"""Command-line words that choose the same rows as a spec, for a suggested command."""

from __future__ import annotations

import shlex

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import SpecField, fields

_IMAGE_FIELDS = (
    "split", "revision", "family", "answers", "store", "sandbox.cpus", "sandbox.memory_mb", "sandbox.registry",
    "sandbox.e2b.templates",
)  # fmt: skip

_PROGRAM_FIELDS = ("agent.name", "agent.file", "agent.command", "agent.folder", "agent.version")
"""Fields whose files are part of the templates."""


def is_of_images(field: SpecField) -> bool:
    """Return whether a field decides which images a run needs, or the size of its machines."""
    return field.path[0] == "select" or field.name in _IMAGE_FIELDS


def is_of_templates(field: SpecField) -> bool:
    """Return whether a field decides the content of a run's templates."""
    return is_of_images(field) or field.name in _PROGRAM_FIELDS


def selection_words(spec: RunSpec) -> str:
    """Return the dataset and the flags that choose the spec's rows and images, quoted for a shell."""
    words = [spec.dataset]
    is_chosen = is_of_templates if agent_of(spec.agent).is_program else is_of_images
    for field in fields():
        value, flag = field.of(spec), field.flag.names[0]
        if not is_chosen(field) or value == field.info.get_default(call_default_factory=True):
            continue
        if isinstance(value, bool):
            on, _, off = flag.partition("/")
            words.append(on if value else off)
        else:
            for item in value if isinstance(value, list) else [value]:
                words += [flag, str(item)]
    return shlex.join(words)
