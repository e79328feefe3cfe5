"""A spec -> the words of a command line that choose the same rows, for a command that is proposed."""

from __future__ import annotations

import shlex

from steps.contracts.run_spec import RunSpec
from steps.contracts.spec_fields import SpecField, fields

_OTHERS = (
    "split", "revision", "family", "answers", "store", "sandbox.cpus", "sandbox.memory_mb", "sandbox.registry",
    "sandbox.e2b.templates",
)  # fmt: skip


def is_of_templates(field: SpecField) -> bool:
    """Whether a field says which images a run needs, and how large its machines are."""
    return field.path[0] == "select" or field.name in _OTHERS


def selection_words(spec: RunSpec) -> str:
    """The dataset and every such flag that the spec sets, quoted for a shell."""
    words = [spec.dataset]
    for field in fields():
        value, first = field.of(spec), field.flag.names[0]
        if not is_of_templates(field) or value == field.info.get_default(call_default_factory=True):
            continue
        if isinstance(value, bool):
            on, _, off = first.partition("/")
            words.append(on if value else off)
        else:
            for item in value if isinstance(value, list) else [value]:
                words += [first, str(item)]
    return shlex.join(words)
