"""``validation.json``: which instances of a dataset are fit to measure or train with, and on what that was seen."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import ClassVar, Literal

from swe_argo.steps.contracts.data import DatasetLock
from swe_argo.steps.contracts.record import Part, Place, Record, key
from swe_argo.steps.contracts.verdict import Outcome

GOLD, IDLE = "gold", "idle"
"""The two runs of a validation: their names are the validation's with one of these behind a dot."""


class Fitness(StrEnum):
    """Whether an instance measures anything."""

    VALID = "valid"
    """Its reference patch resolves it each time, and an untouched repository does not."""
    GOLD_FAILS = "gold_fails"
    """Its reference patch never resolves it: no agent can, here."""
    IDLE_RESOLVES = "idle_resolves"
    """An untouched repository resolves it: any agent does."""
    FLAKY = "flaky"
    """Its reference patch resolves it sometimes, or only in a second run of its tests."""
    NOT_GRADEABLE = "not_gradeable"
    """Its row cannot be graded here, so that it was not run: a parser that there is not, a list without tests."""
    INCOMPLETE = "incomplete"
    """Some of its runs have no verdict, and those there are decide nothing."""


class ValidationResources(Part):
    """What its sandboxes were, as the spec has it."""

    backend: str
    cpus: float | None
    memory_mb: int | None
    disk_mb: int | None
    resource_factor: float
    timeout_s: int
    """Of the tests."""
    grading_network: bool
    machines: list[str]
    """``backend, isolation`` as recorded."""


class ValidatedInstance(Part):
    """One instance and what its runs came to."""

    instance_id: str
    row_sha256: str
    """Empty where it was not run."""
    image: str
    image_digest: str | None
    fitness: Fitness
    reason: str = ""
    """Why it is not valid, in a line."""
    gold: list[Outcome | None]
    """Outcome of each gold run in its order; None where it has no verdict."""
    gold_resolved: int
    """Of these: resolved, and in the first run of the tests."""
    second_runs: int = 0
    """Gold runs whose tests ran twice, for the first time broke their machine or was told not to count."""
    idle: Outcome | None
    flaky_tests: dict[str, int] = {}
    """Listed test that did not come out alike in all gold runs -> gold runs in which it did not come out as it must."""
    failing_tests: list[str] = []
    """Listed tests that came out as they must in no gold run."""
    passing_untouched: list[str] = []
    """Tests that only a fix should make pass, and that pass in the untouched repository."""


class Validation(Record):
    """A dataset, or a part of it, on one kind of machine."""

    file: ClassVar[str] = "validation.json"
    place: ClassVar[Place] = Place.VALIDATION
    format: Literal["swe-argo-validation-1"] = "swe-argo-validation-1"
    validation_id: str
    dataset: DatasetLock
    created_at: str
    """When its gold run was planned."""
    gold_runs: int
    """Times that each reference patch was graded."""
    resources: ValidationResources
    versions: dict[str, str]
    image_digests: dict[str, str]
    """image -> digest, where known."""
    counts: dict[str, int]
    """Fitness -> instances."""
    instances: list[ValidatedInstance]

    @property
    def known_instances(self) -> list[ValidatedInstance]:
        """Those whose class will not change by another try of the same run."""
        return [one for one in self.instances if one.fitness is not Fitness.INCOMPLETE]

    @property
    def complete(self) -> bool:
        """Whether every instance is known."""
        return not self.counts.get(Fitness.INCOMPLETE)

    @property
    def word(self) -> str:
        """The counts."""
        others = [f"{n:,} {name}" for name, n in self.counts.items() if n and name != Fitness.VALID]
        return f"{self.counts.get(Fitness.VALID, 0):,} of {len(self.instances):,} valid" + (
            f", {', '.join(others)}" if others else ""
        )


def dataset_folder(dataset: str) -> str:
    """The folder below ``validations/`` of a dataset by its name."""
    name = dataset.rstrip("/").rpartition("/")[2] if dataset.startswith(("/", ".", "~", "s3:")) else dataset
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("/", "__")).strip(".")[-100:] or "dataset"


def validation_key(dataset: str, validation_id: str) -> str:
    """Its store key."""
    return key(Validation, validation_id, name=dataset_folder(dataset))


def validation_of(run_id: str) -> str | None:
    """The validation that a run of this name is a part of, if it is one of its two."""
    name, _, part = run_id.rpartition(".")
    return name if part in (GOLD, IDLE) and name else None


def part_of(validation_id: str, part: str) -> str:
    """The name of one of its runs: ``GOLD`` or ``IDLE``."""
    return f"{validation_id}.{part}"
