"""The chosen fields of a spec as TOML for ``swe-argo run FILE``."""

from __future__ import annotations

import json
from typing import Any

from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.spec_parsing import is_set, merge_tables, set_implied_fields
from swe_argo.workflows.api.request import RunRequest


def spec_toml(request: RunRequest) -> str:
    """Return TOML that gives the same spec when it is read, without a generated run id and without ``redo``."""
    chosen = merge_tables({}, request.chosen)
    # Adds the fields that follow from the chosen ones, such as an agent's defaults.
    set_implied_fields(chosen)
    tables: dict[str, list[str]] = {"": []}
    for field in (field for field in fields() if field.name != "redo"):
        value = field.of(request.spec)
        if is_set(chosen, field.path) and value is not None:
            tables.setdefault(".".join(field.path[:-1]), []).append(f"{field.path[-1]} = {_value(value)}")
    parts = [[*([f"[{name}]"] if name else []), *lines] for name, lines in tables.items() if lines]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in parts)


def _value(value: Any) -> str:
    """Return a value as TOML: JSON, except that TOML requires DEL to be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
