"""Choice of the selected rows that are fit by a validation, and the notices about the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.data import DatasetLock, RunFile, UsedValidation
from swe_argo.steps.contracts.run_spec import LAST_VALIDATION, SelectSpec
from swe_argo.steps.contracts.validation import Fitness, Validation
from swe_argo.steps.datasets.names import list_first
from swe_argo.steps.datasets.records import local_path, read_bytes
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import digest_rows
from swe_argo.steps.planning.growth import planned_ids
from swe_argo.steps.store import Store
from swe_argo.steps.store.runs import store_flag
from swe_argo.steps.store.validations import stored_validation, validations_of

FIELD = "select.validated"
UNKNOWN = "not_validated"
"""The class of an instance that the validation does not have."""


@dataclass(frozen=True)
class FitRows:
    """The rows of the run, and the record of the choice: ``used`` is None if no validation was given."""

    rows: list[dict[str, Any]]
    used: UsedValidation | None
    notices: list[str]


def choose_fit_rows(
    selected: list[dict[str, Any]], here: SelectSpec, lock: DatasetLock, store: Store, before: RunFile | None
) -> FitRows:
    """Leave out rows that the spec's validation does not call valid, or only report them (``keep_invalid``).

    ``lock`` is of the rows ``selected``. Raises ConfigError if there is no such validation, it is of another dataset,
    revision or rows, or no selected row is valid; InfraError.
    """
    if here.validated is None:
        return FitRows(selected, None, [])
    if here.validated == LAST_VALIDATION and before is not None and before.validation is not None:
        # A resumed run keeps its first choice: the validation may have been completed since, or removed.
        name, unfit = before.validation.validation_id, _unfit_now(before, before.validation, selected, store)
    else:
        validation = (
            _best_of_store(selected, lock, store)
            if here.validated == LAST_VALIDATION
            else _read(local_path(here.validated, FIELD))
        )
        _refuse_other(validation, selected, lock)
        fitness = _fitness(validation)
        name, unfit = validation.validation_id, _unfit(selected, fitness)
    used = UsedValidation(validation_id=name, unfit=unfit, kept=here.keep_invalid)
    if not unfit:
        return FitRows(selected, used, [])
    classes = defaultdict(list)
    for one, known in unfit.items():
        classes[known].append(one)
    named = "; ".join(f"{len(ids)} {known}: {list_first(ids)}" for known, ids in classes.items())
    which = f"{len(unfit)} of {len(selected)} selected instances"
    if here.keep_invalid:
        return FitRows(selected, used, [f"{which} are not valid by {name}, and run: {named}"])
    kept = [row for row in selected if row["instance_id"] not in unfit]
    if not kept:
        raise ConfigError(f"nothing is left: {which} are not valid by {name}: {named}", field=FIELD)
    return FitRows(kept, used, [f"{which} left out, not valid by {name}: {named}"])


def _fitness(validation: Validation) -> dict[str, str]:
    return {one.instance_id: one.fitness.value for one in validation.instances}


def _unfit(rows: list[dict[str, Any]], fitness: Mapping[str, str]) -> dict[str, str]:
    """Return instance -> its class, or ``UNKNOWN``, for instances that are not known to be valid."""
    classes = {row["instance_id"]: fitness.get(row["instance_id"], UNKNOWN) for row in rows}
    return {one: known for one, known in classes.items() if known != Fitness.VALID.value}


def _unfit_now(before: RunFile, used: UsedValidation, selected: list[dict[str, Any]], store: Store) -> dict[str, str]:
    """Return the first choice of the run, and the same validation's classes of the instances added since."""
    seen = used.unfit.keys() | set(planned_ids(before.run_id, store) or ())
    unfit = {row["instance_id"]: used.unfit[row["instance_id"]] for row in selected if row["instance_id"] in used.unfit}
    grown = [row for row in selected if row["instance_id"] not in seen]
    if not grown:
        return unfit
    if (validation := stored_validation(store, before.dataset.name, used.validation_id)) is None:
        raise ConfigError(
            f"run {before.run_id!r} began by {used.validation_id}, which is not in {store.url} any more: "
            "it cannot say which of the new instances are valid; use another run id",
            field=FIELD,
        )
    return unfit | _unfit(grown, _fitness(validation))


def _best_of_store(selected: list[dict[str, Any]], lock: DatasetLock, store: Store) -> Validation:
    """Return the validation that knows most of the selected instances; of equals the newest."""
    stored = validations_of(store, lock.name)
    if not stored:
        command = f"swe-argo validate {lock.name}{store_flag(store)}"
        raise ConfigError(f"{store.url} has no validation of {lock.name}: {command}", field=FIELD)
    ids = {row["instance_id"] for row in selected}
    known = [sum(one.instance_id in ids for one in validation.known_instances) for validation in stored]
    return max(zip(known, range(len(stored)), stored, strict=True))[2]


def _read(path: Path) -> Validation:
    file = path / Validation.file if path.is_dir() else path
    try:
        return Validation.from_bytes(read_bytes(Path(file), FIELD))
    except ValueError:  # includes pydantic's error
        raise ConfigError(f"{file} is no validation, or one of another version of swe-argo", field=FIELD) from None


def _refuse_other(validation: Validation, selected: list[dict[str, Any]], lock: DatasetLock) -> None:
    # Instances that were not run have no digest.
    seen = {one.instance_id: one.row_sha256 for one in validation.instances if one.row_sha256}
    common = [row for row in selected if row["instance_id"] in seen]
    was = validation.dataset
    # A file or a folder has no name but its path, so its content decides.
    other_name = was.name != lock.name and (was.revision is not None or lock.revision is not None or not common)
    if other_name or was.split != lock.split or was.revision != lock.revision:
        raise ConfigError(
            f"validation {validation.validation_id} is of {_describe(was)}, the run's dataset is {_describe(lock)}",
            field=FIELD,
        )
    for row in common:
        if seen[row["instance_id"]] != (now := digest_rows([row])):
            raise ConfigError(
                f"validation {validation.validation_id} is of other rows of {lock.name}: {row['instance_id']} was "
                f"{seen[row['instance_id']][:12]}, now {now[:12]}",
                field=FIELD,
            )


def _describe(lock: DatasetLock) -> str:
    return f"{lock.name} ({lock.split}, " + (f"revision {lock.revision})" if lock.revision else "no revision)")
