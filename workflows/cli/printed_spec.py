"""What was chosen of a spec, as the TOML that ``swe-argo run FILE`` reads."""

from __future__ import annotations

import json
from typing import Any

from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.spec_parsing import follow, has, laid_over
from swe_argo.workflows.api.request import RunRequest


def spec_toml(request: RunRequest) -> str:
    """Read again, it is the same spec; a name that was made for the run is left out, and what is redone this once."""
    chosen = laid_over({}, request.chosen)
    follow(chosen)
    tables: dict[str, list[str]] = {"": []}
    for field in (one for one in fields() if one.name != "redo"):
        value = field.of(request.spec)
        if has(chosen, field.path) and value is not None:
            tables.setdefault(".".join(field.path[:-1]), []).append(f"{field.path[-1]} = {_value(value)}")
    parts = [[*([f"[{name}]"] if name else []), *lines] for name, lines in tables.items() if lines]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in parts)


def _value(value: Any) -> str:
    """JSON is TOML for all of them but DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
