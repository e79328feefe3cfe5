"""The validations of a dataset in a store."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.contracts.validation import Validation, dataset_folder, validation_key
from swe_argo.steps.store.protocol import Store


def stored_validation(store: Store, dataset: str, validation_id: str) -> Validation | None:
    """Return a validation by its name; None if it is missing or unreadable. Raises InfraError."""
    name = validation_key(dataset, validation_id)
    data = store.get_many([name]).get(name)
    try:
        return Validation.from_bytes(data) if data is not None else None
    except ValueError:  # written by another version
        return None


def validations_of(store: Store, dataset: str) -> list[Validation]:
    """Return a dataset's validations, oldest first. Two paths of one file are one dataset. Raises InfraError."""
    names = store.folders(f"validations/{dataset_folder(dataset)}/")
    validations = [validation for name in names if (validation := stored_validation(store, dataset, name)) is not None]
    matching = [
        validation for validation in validations if Path(validation.dataset.name).resolve() == Path(dataset).resolve()
    ]
    return sorted(matching, key=lambda validation: (validation.created_at, validation.validation_id))
