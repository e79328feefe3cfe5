"""Known doubts about instances of a dataset, from validations and flipping tests in a store."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.contracts.validation import Fitness
from swe_argo.steps.reports.figures.flips import describe_flips
from swe_argo.steps.reports.flakes.ledger import Flips, mark_flips, read_flips
from swe_argo.steps.reports.stored_run import StoredUnit
from swe_argo.steps.store import Store
from swe_argo.steps.store.validations import validations_of


@dataclass(frozen=True)
class KnownDoubts:
    """The known doubts about one dataset."""

    unfit: dict[str, str]
    """Instance -> class and validation; of the validations that graded it most often, the newest."""
    flips: Flips

    def describe(self, unit: StoredUnit) -> str:
        """Return the known doubts about a unit's verdict; empty if there are none."""
        mark_flips([unit], self.flips)
        return "; ".join(filter(None, [self.unfit.get(unit.instance_id, ""), describe_flips(unit)]))


def known_doubts(store: Store, dataset: str) -> KnownDoubts:
    """Return the doubts that a store has about a dataset. Raises InfraError if the store fails."""
    classes: dict[str, tuple[int, Fitness, str]] = {}
    for validation in validations_of(store, dataset):
        for result in validation.known_instances:
            # More gold runs decide; in a tie the newer validation, because validations come oldest first.
            if len(result.gold) >= classes.get(result.instance_id, (0, ""))[0]:
                classes[result.instance_id] = (len(result.gold), result.fitness, validation.validation_id)
    unfit = {
        instance: f"{fitness.value} by validation {name}"
        for instance, (_, fitness, name) in classes.items()
        if fitness is not Fitness.VALID
    }
    return KnownDoubts(unfit, read_flips(store, dataset))
