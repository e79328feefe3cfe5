"""What grading leaves beside its record."""

from __future__ import annotations

import json

from swe_argo.steps.contracts.data import Unit
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome


def machine(unit: Unit, *, network: bool, usd_per_hour: float | None = None) -> Machine:
    """The sandbox a stage of the unit ran in."""
    return Machine(
        backend="docker",
        image=unit.image,
        image_digest="sha256:" + "c" * 64,
        isolation="container",
        network=network,
        cpus=2.0,
        memory_mb=4096,
        usd_per_hour=usd_per_hour,
    )


def official(instance_id: str, grade: GradeRecord) -> bytes:
    """The official report of a grade."""
    status = {
        "FAIL_TO_PASS": {"success": [], "failure": grade.failing_tests},
        "PASS_TO_PASS": {"success": [], "failure": []},
    }
    inner = {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": grade.outcome is not Outcome.LOG_UNREADABLE,
        "resolved": grade.resolved,
        "infra_failure": False,
        "tests_status": status,
    }
    return json.dumps({instance_id: inner}, indent=4).encode()
