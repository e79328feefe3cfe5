"""Construction of a Validation from the verdicts of its gold and idle runs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from swe_argo.steps.contracts.data import Answer
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.validation import (
    GOLD,
    IDLE,
    Fitness,
    ValidatedInstance,
    Validation,
    ValidationResources,
    validation_run_id,
)
from swe_argo.steps.contracts.verdict import Outcome, Report
from swe_argo.steps.reports.batches import RECORDS_AT_ONCE, batches
from swe_argo.steps.reports.figures.conditions import run_conditions
from swe_argo.steps.reports.reading import read_verdicts
from swe_argo.steps.reports.stored_run import StoredRun, StoredUnit
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.reports.text.visible import WHOLE
from swe_argo.steps.store import Store

_REASON_CHARACTERS = 300
SECOND_RUN = "second_run"
"""Finding of a verdict that needed a second run of the tests."""


def build_validation(store: Store, validation_id: str) -> Validation:
    """Return the validation from its two runs. Raises ConfigError if one is missing, InfraError if the store fails."""
    gold_run = read_verdicts(store, validation_run_id(validation_id, GOLD), max_tests=WHOLE)
    idle_run = read_verdicts(store, validation_run_id(validation_id, IDLE), max_tests=WHOLE)
    gold = _by_instance(gold_run)
    idle = {unit.instance_id: unit for unit in idle_run.units}
    hashes = _row_hashes(store, gold_run)
    images = {unit.instance_id: unit.image for unit in gold_run.plan.units} if gold_run.plan else {}
    digests = gold_run.run.image_digests
    passing = _find_passing_untouched(store, idle_run)
    instances = [
        _instance(
            tries,
            idle.get(instance),
            row_sha256=hashes.get(instance, ""),
            image=images[instance],
            planned_digest=digests.get(images[instance]),
            passing_untouched=passing.get(instance, []),
        )
        for instance, tries in gold.items()
    ]
    instances += [
        ValidatedInstance(
            instance_id=instance,
            row_sha256="",
            image="",
            image_digest=None,
            fitness=Fitness.NOT_GRADEABLE,
            reason=reason.removeprefix(f"{instance}: "),
            gold=[],
            gold_resolved=0,
            idle=None,
        )
        for instance, reason in gold_run.run.not_gradeable.items()
    ]
    counts = Counter(instance.fitness for instance in instances)
    run, spec = gold_run.run, gold_run.run.spec
    return Validation(
        validation_id=validation_id,
        dataset=run.dataset,
        created_at=run.created_at,
        gold_runs=spec.attempts,
        resources=ValidationResources(
            backend=spec.sandbox.backend,
            cpus=spec.sandbox.cpus,
            memory_mb=spec.sandbox.memory_mb,
            disk_mb=spec.sandbox.disk_mb,
            resource_factor=spec.sandbox.resource_factor,
            timeout_s=spec.grading.timeout_s,
            grading_network=spec.grading.network,
            machines=run_conditions(gold_run).machines,
        ),
        versions=run.versions,
        image_digests=digests,
        counts={fitness.value: counts[fitness] for fitness in Fitness},
        instances=instances,
    )


def _by_instance(run: StoredRun) -> dict[str, list[StoredUnit]]:
    units: dict[str, list[StoredUnit]] = defaultdict(list)
    for unit in run.units:
        units[unit.instance_id].append(unit)
    return units


def _row_hashes(store: Store, run: StoredRun) -> dict[str, str]:
    """Return instance -> digest of its row, from the run's answers."""
    hashes = {}
    ids = list(dict.fromkeys(unit.instance_id for unit in run.units))
    for batch in batches(ids, RECORDS_AT_ONCE):
        names = {key(Answer, run.run.run_id, instance): instance for instance in batch}
        for name, data in store.get_many(names).items():
            hashes[names[name]] = Answer.from_bytes(data).row_sha256
    return hashes


def _instance(
    gold: list[StoredUnit],
    idle: StoredUnit | None,
    *,
    row_sha256: str,
    image: str,
    planned_digest: str | None,
    passing_untouched: list[str],
) -> ValidatedInstance:
    """Return the result of an instance, from its gold runs and its idle run (None if that is not planned).

    ``planned_digest``: digest of the image at planning, if no verdict recorded one.
    """
    graded = [unit for unit in gold if unit.grade is not None]
    readable = [unit for unit in graded if _outcome(unit) in (Outcome.RESOLVED, Outcome.UNRESOLVED)]
    failing = Counter(test for unit in readable if unit.grade for test in unit.grade.failing_tests)
    second_runs = sum(map(_ran_twice, graded))
    resolved = sum(_outcome(unit) is Outcome.RESOLVED and not _ran_twice(unit) for unit in graded)
    fitness, reason = _judge(gold, idle, resolved=resolved, second_runs=second_runs)
    recorded = (unit.grade.machine.image_digest for unit in graded if unit.grade and unit.grade.machine)
    return ValidatedInstance(
        instance_id=gold[0].instance_id,
        row_sha256=row_sha256,
        image=image,
        image_digest=next((digest for digest in recorded if digest), planned_digest),
        fitness=fitness,
        reason=reason,
        gold=[_outcome(unit) for unit in gold],
        gold_resolved=resolved,
        second_runs=second_runs,
        idle=_outcome(idle),
        flaky_tests={test: times for test, times in failing.items() if times < len(readable)},
        failing_tests=[test for test, times in failing.items() if times >= len(readable)],
        passing_untouched=passing_untouched,
    )


def _judge(gold: list[StoredUnit], idle: StoredUnit | None, *, resolved: int, second_runs: int) -> tuple[Fitness, str]:
    """Return (class, reason), by the worst known fact; a missing verdict matters only if no known fact decides."""
    runs = count(len(gold), "gold run")
    if _outcome(idle) is Outcome.RESOLVED:
        return Fitness.IDLE_RESOLVES, "the untouched repository is resolved"
    outcomes = Counter(outcome for unit in gold if (outcome := _outcome(unit)) is not None)
    graded = outcomes.total()
    if resolved < graded and (resolved or outcomes[Outcome.RESOLVED]):
        suffix = f", {second_runs} of them after a second run of the tests" if second_runs else ""
        return Fitness.FLAKY, f"resolved in {outcomes[Outcome.RESOLVED]} of {runs}{suffix}"
    missing = [unit for unit in [*gold, *([idle] if idle else [])] if unit.grade is None]
    if missing or idle is None:
        failure = next((unit.failure for unit in missing if unit.failure is not None), None)
        why = f"{failure.failure_class.value}: {failure.reason}" if failure else "not run"
        return Fitness.INCOMPLETE, why
    if resolved == graded:
        return Fitness.VALID, ""
    (worst, _), *_ = outcomes.most_common()
    reasons = (unit.grade.official_failure_reason for unit in gold if unit.grade and unit.grade.outcome is worst)
    why = next((f": {' '.join(reason.split())[:_REASON_CHARACTERS]}" for reason in reasons if reason), "")
    return Fitness.GOLD_FAILS, f"{worst.value} in {outcomes[worst]} of {runs}{why}"


def _ran_twice(unit: StoredUnit) -> bool:
    """Return whether the verdict needed a second run of the tests, which counts as flaky."""
    return unit.grade is not None and any(finding.code == SECOND_RUN for finding in unit.grade.integrity.findings)


def _outcome(unit: StoredUnit | None) -> Outcome | None:
    return unit.grade.outcome if unit is not None and unit.grade is not None else None


def _find_passing_untouched(store: Store, run: StoredRun) -> dict[str, list[str]]:
    """Return, by instance, the FAIL_TO_PASS tests that pass in the untouched repository."""
    units = [unit for unit in run.units if unit.grade and unit.grade.fail_to_pass and unit.grade.fail_to_pass.passed]
    passing = {}
    for batch in batches(units, RECORDS_AT_ONCE):
        names = {key(Report, run.run.run_id, unit.instance_id, unit.attempt): unit.instance_id for unit in batch}
        for name, data in store.get_many(names).items():
            passing[names[name]] = _read_passed(data, names[name])
    return passing


def _read_passed(report: bytes, instance_id: str) -> list[str]:
    """Return the FAIL_TO_PASS tests that passed, from an official report."""
    inner: dict[str, Any] = json.loads(report).get(instance_id, {})
    return list(inner.get("tests_status", {}).get("FAIL_TO_PASS", {}).get("success", []))
