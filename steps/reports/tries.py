"""Failed tries of one unit."""

from __future__ import annotations

from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import Place
from swe_argo.steps.store import Store


def read_failures(store: Store, run: str, instance: str, attempt: int) -> dict[str, Failure]:
    """Return the readable failures by folder of the try, oldest first. Raises InfraError if the store fails."""
    folder = Place.UNIT.format(run=run, instance=instance, attempt=attempt)
    names = [name for name in store.keys(f"{folder}/tries/") if name.endswith(f"/{Failure.file}")]
    by_folder = {}
    for name, data in store.get_many(names).items():
        try:
            by_folder[name.removesuffix(f"/{Failure.file}")] = Failure.from_bytes(data)
        except ValueError:  # also pydantic's validation error
            continue
    return dict(sorted(by_folder.items(), key=lambda item: item[1].occurred_at))
