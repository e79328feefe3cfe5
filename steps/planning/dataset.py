"""Reading of a run's dataset: the selected rows, and the exact source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.data import DatasetLock, RunFile, UsedValidation
from swe_argo.steps.contracts.progress_lines import doing
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import load, selection
from swe_argo.steps.families import rows
from swe_argo.steps.planning.gradeable import choose_gradeable_rows
from swe_argo.steps.planning.growth import check_rows, describe_growth
from swe_argo.steps.planning.validated import choose_fit_rows
from swe_argo.steps.store import Store


@dataclass(frozen=True)
class SelectedDataset:
    """The dataset of a run: ``rows`` are the selected ones, ``known_ids`` all ids that exist."""

    name: str
    lock: DatasetLock
    rows: list[dict[str, Any]]
    known_ids: list[str]
    notices: list[str]
    validation: UsedValidation | None
    not_gradeable: dict[str, str]
    environments: dict[str, Path]


def read_dataset(spec: RunSpec, here: RunSpec, before: RunFile | None, store: Store) -> SelectedDataset:
    """Read the rows that a spec selects; ``here`` has local files, ``before`` is the run that is resumed, if any.

    Raises ConfigError, InfraError.
    """
    doing(f"reading dataset {spec.dataset}")
    revision = spec.revision or (before.dataset.revision if before else None)
    loaded = load.load(here.dataset, spec.split, revision=revision, answers=here.answers, family=spec.family)
    selected, notices = selection.select(loaded.rows, here.select, loaded.by_id)
    lock = DatasetLock(
        name=loaded.name if here.dataset == spec.dataset else spec.dataset,
        split=loaded.split,
        revision=loaded.revision,
        rows=len(selected),
        sha256=rows.digest_rows(selected),
    )
    fit = choose_fit_rows(selected, here.select, lock, store, before)
    gradeable = choose_gradeable_rows(fit.rows, skip=here.select.skip_not_gradeable)
    if len(gradeable.rows) < len(selected):
        lock = lock.model_copy(update={"rows": len(gradeable.rows), "sha256": rows.digest_rows(gradeable.rows)})
    growth = []
    if before:
        check_rows(before, spec, lock, gradeable.rows, store)
        growth = describe_growth(before, spec, len(gradeable.rows), store)
    known_ids = [row["instance_id"] for row in (*loaded.rows, *loaded.by_id)]
    notices = [*growth, *loaded.notices, *notices, *fit.notices, *gradeable.notices]
    return SelectedDataset(
        loaded.name,
        lock,
        gradeable.rows,
        known_ids,
        notices,
        fit.used,
        gradeable.left_out,
        loaded.environments,
    )
