"""Reading of a run's dataset: the selected rows, and the exact source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.data import DatasetLock, RunFile, UsedValidation
from swe_argo.steps.contracts.progress_lines import print_progress
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import load, selection
from swe_argo.steps.families import rows
from swe_argo.steps.planning.gradeable import choose_gradeable_rows
from swe_argo.steps.planning.growth import check_rows, describe_growth
from swe_argo.steps.planning.validated import choose_fit_rows
from swe_argo.steps.store import Store


@dataclass(frozen=True)
class SelectedDataset:
    """The dataset of a run: ``rows`` are the selected ones, ``known_ids`` all ids that exist.

    ``not_gradeable``: instance -> the reason why it is left out. ``environments``: image -> its build folder.
    """

    name: str
    lock: DatasetLock
    rows: list[dict[str, Any]]
    known_ids: list[str]
    notices: list[str]
    validation: UsedValidation | None
    not_gradeable: dict[str, str]
    environments: dict[str, Path]


def read_dataset(spec: RunSpec, local_spec: RunSpec, previous: RunFile | None, store: Store) -> SelectedDataset:
    """Read the rows that a spec selects. Raises ConfigError if they are wrong or changed, InfraError if a hub is away.

    ``local_spec`` is the spec with local files; ``previous`` is the run that is resumed, if any.
    """
    print_progress(f"reading dataset {spec.dataset}")
    revision = spec.revision or (previous.dataset.revision if previous else None)
    loaded = load.load(
        local_spec.dataset, spec.split, revision=revision, answers=local_spec.answers, family=spec.family
    )
    selected, notices = selection.select(loaded.rows, local_spec.select, loaded.by_id)
    lock = DatasetLock(
        name=loaded.name if local_spec.dataset == spec.dataset else spec.dataset,
        split=loaded.split,
        revision=loaded.revision,
        rows=len(selected),
        sha256=rows.digest_rows(selected),
    )
    fit = choose_fit_rows(selected, local_spec.select, lock, store, previous)
    gradeable = choose_gradeable_rows(fit.rows, skip=local_spec.select.skip_not_gradeable)
    if len(gradeable.rows) < len(selected):
        lock = lock.model_copy(update={"rows": len(gradeable.rows), "sha256": rows.digest_rows(gradeable.rows)})
    growth = []
    if previous:
        check_rows(previous, spec, lock, gradeable.rows, store)
        growth = describe_growth(previous, spec, len(gradeable.rows), store)
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
