"""Writer of a validation's folder, from its two runs."""

from __future__ import annotations

from swe_argo.steps.contracts.chain import PAGE
from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.progress_lines import print_progress
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.validation import GOLD, IDLE, Validation, validation_key, validation_of, validation_run_id
from swe_argo.steps.reports.validation.build import build_validation
from swe_argo.steps.reports.validation.page import render_validation
from swe_argo.steps.store import Store


def write_validation_of(store: Store, run_id: str) -> Validation | None:
    """Write the validation that the run is a part of, if both parts are planned.

    Returns None if the run is not part of a validation, or the other part is not planned. Raises InfraError if the
    store fails.
    """
    name = validation_of(run_id)
    if name is None:
        return None
    runs = [_stored(store, validation_run_id(name, part)) for part in (GOLD, IDLE)]
    gold, idle = (run.spec.agent.name if run else "" for run in runs)
    if (gold, idle) != (GOLD, IDLE) or len({run.dataset.sha256 for run in runs if run}) != 1:
        return None
    return write_validation(store, name)


def _stored(store: Store, run_id: str) -> RunFile | None:
    name = key(RunFile, run_id)
    data = store.get_many([name, key(Plan, run_id)])
    return RunFile.from_bytes(data[name]) if len(data) == 2 else None


def write_validation(store: Store, validation_id: str) -> Validation:
    """Write the page, then ``validation.json``, which marks both as complete.

    Raises ConfigError if a run is missing, InfraError if the store fails.
    """
    print_progress("reading the two runs of the validation")
    validation = build_validation(store, validation_id)
    store.put(page_key(validation), render_validation(validation))
    store.put(validation_key(validation.dataset.name, validation_id), validation.to_bytes())
    return validation


def page_key(validation: Validation) -> str:
    """Return the store key of the validation's page."""
    return validation_key(validation.dataset.name, validation.validation_id).replace(Validation.file, PAGE)
