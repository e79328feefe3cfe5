"""The official summary, ``<model>.<run>.json``, identical to that of swebench's make_run_report byte for byte.

Computed from the store, which has no tree of log folders (swebench 5.0.2, harness/reporting.py).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from swe_argo.steps.contracts.ids import model_token
from swe_argo.steps.reports.signatures import is_environment
from swe_argo.steps.reports.stored_run import StoredUnit


def official_name(model: str, run_id: str, attempt: int) -> str:
    """Return the file's name: the official name for the first attempt, with the attempt's number for the others."""
    return f"{model_token(model)}.{run_id}{'' if attempt == 1 else f'.attempt-{attempt}'}.json"


def official_summary(units: list[StoredUnit]) -> bytes:
    """Return the file's content for the units of one attempt.

    A unit is submitted if it has a patch or a layer, and an error if submitted without a readable ``report.json``. The
    harness treats an untouched repository (``idle``) as an empty patch, although we grade it.
    """
    ids: dict[str, set[str]] = {name: set() for name in _LISTS}
    reasons: dict[str, str] = {}
    for unit in units:
        lists = _lists_of(unit)
        for name in lists:
            ids[name].add(unit.instance_id)
        if unit.official.reason is not None and {"unresolved", "error"} & lists:
            reason, tier = unit.official.reason
            reasons[unit.instance_id] = reason
            ids["infra_failure" if is_environment(tier) else "ambiguous_failure"].add(unit.instance_id)
    return (json.dumps(_official_fields(len(units), ids, reasons), indent=4) + "\n").encode()


_LISTS = (
    "completed",
    "incomplete",
    "empty_patch",
    "submitted",
    "resolved",
    "unresolved",
    "infra_failure",
    "ambiguous_failure",
    "error",
)


def _lists_of(unit: StoredUnit) -> set[str]:
    """Return the names of the official lists that the unit is in."""
    if unit.patch is None:
        return {"incomplete"}
    if not unit.patch and not _has_layer(unit):
        return {"submitted", "empty_patch"}
    if not unit.official.completed:
        return {"submitted", "error"}
    verdict = {True: "resolved", False: "unresolved", None: "error"}[unit.official.resolved]
    return {"submitted", "completed", verdict}


def _has_layer(unit: StoredUnit) -> bool:
    """Return whether the graded submission differs from the patch."""
    graded = unit.grade.patch_sha256 if unit.grade else ""
    return graded not in ("", hashlib.sha256(unit.patch or b"").hexdigest())


def _official_fields(total: int, ids: dict[str, set[str]], reasons: dict[str, str]) -> dict[str, Any]:
    listed = {name: sorted(members) for name, members in ids.items()}
    return {
        "total_instances": total,
        "submitted_instances": len(listed["submitted"]),
        "completed_instances": len(listed["completed"]),
        "resolved_instances": len(listed["resolved"]),
        "unresolved_instances": len(listed["unresolved"]),
        "infra_failure_instances": len(listed["infra_failure"]),
        "ambiguous_failure_instances": len(listed["ambiguous_failure"]),
        "empty_patch_instances": len(listed["empty_patch"]),
        "error_instances": len(listed["error"]),
        "completed_ids": listed["completed"],
        "incomplete_ids": listed["incomplete"],
        "empty_patch_ids": listed["empty_patch"],
        "submitted_ids": listed["submitted"],
        "resolved_ids": listed["resolved"],
        "unresolved_ids": listed["unresolved"],
        "infra_failure_ids": listed["infra_failure"],
        "ambiguous_failure_ids": listed["ambiguous_failure"],
        "failure_reasons": dict(sorted(reasons.items())),
        "error_ids": listed["error"],
        "schema_version": 2,
    }
