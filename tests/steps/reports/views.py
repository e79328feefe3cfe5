"""Small runs in memory, told by what became of each instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swe_argo.steps.contracts.data import DatasetLock, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.verdict import GradeRecord, Integrity, Outcome
from swe_argo.steps.reports.stored_run import FailedTry, StoredRun, StoredUnit
from tests.steps.reports.texts import VERSIONS

LOCK = DatasetLock(name="SWE-bench/SWE-bench_Verified", split="test", revision="c104f840", rows=500, sha256="9f" * 32)


def run_file(run_id: str = "now", spec: Mapping[str, Any] | None = None, **fields: Any) -> RunFile:
    """A run that was planned; ``fields`` replace what it usually says."""
    return RunFile.model_validate(
        {
            "run_id": run_id,
            "spec": RunSpec.model_validate({"agent": {"name": "replay"}} | dict(spec or {})),
            "dataset": LOCK,
            "model": "lab/model-1",
            "versions": VERSIONS,
            "created_at": "2026-11-20T22:04:11+00:00",
        }
        | fields
    )


def view(run: RunFile, became: Mapping[str, str | list[str]], **how: Any) -> StoredRun:
    """``became``: instance -> outcome, ``failed`` or ``not_run``, or a list of them, one an attempt."""
    units = [
        _unit(instance_id, attempt, word, **how)
        for instance_id, words in became.items()
        for attempt, word in enumerate([words] if isinstance(words, str) else words, 1)
    ]
    planned = [
        Unit(
            instance_id=u.instance_id,
            attempt=u.attempt,
            begins=Stage.SOLVE,
            repo=u.repo,
            image=f"hub/{u.instance_id}:1",
        )
        for u in units
    ]
    return StoredRun(run=run, plan=Plan(run_id=run.run_id, units=planned), units=units, unreadable=[])


def _unit(
    instance_id: str,
    attempt: int,
    word: str,
    *,
    patches: Mapping[str, str] | None = None,
    digests: Mapping[str, str | None] | None = None,
    tests: Mapping[str, list[str]] | None = None,
    network: bool = True,
    backend: str = "docker",
) -> StoredUnit:
    unit = StoredUnit(instance_id=instance_id, attempt=attempt, repo="a/b", begins=Stage.SOLVE)
    if word == "failed":
        unit.tries = [FailedTry(_failure(instance_id, attempt), Usage())]
    elif word != "not_run":
        failing = (tests or {}).get(instance_id, [])
        machine = Machine(
            backend=backend,
            image=f"hub/{instance_id}:1",
            image_digest=(digests or {}).get(instance_id, "sha256:" + "c" * 64),
            isolation="container",
            network=network,
        )
        unit.failing_tests = len(failing)
        unit.grade = GradeRecord(
            instance_id=instance_id,
            attempt=attempt,
            outcome=Outcome(word),
            resolved=word == "resolved",
            failing_tests=failing[:20],
            integrity=Integrity(verdict="ok"),
            machine=machine,
            patch_sha256=(patches or {}).get(instance_id, "ab" * 32),
            versions={"swebench": "5.0.2"},
        )
    return unit


def _failure(instance_id: str, attempt: int) -> Failure:
    return Failure(
        step="solve",
        instance_id=instance_id,
        attempt=attempt,
        failure_class=FailureClass.IMAGE_PULL,
        reason="the registry does not answer",
        exit_code=75,
        occurred_at="2026-11-20T22:10:00+00:00",
    )
