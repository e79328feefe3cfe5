"""``validation.json``: the instances of a dataset that are fit to measure or train with, on certain machines."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import ClassVar, Literal

from typing_extensions import override

from swe_argo.steps.contracts.data import DatasetLock
from swe_argo.steps.contracts.record import Part, Place, Record, key
from swe_argo.steps.contracts.verdict import Outcome

GOLD, IDLE = "gold", "idle"
"""Suffixes of a validation's two runs: VALIDATION.gold and VALIDATION.idle."""


class Fitness(StrEnum):
    """Whether an instance is fit to measure with."""

    VALID = "valid"
    """Its reference patch always resolves it, and an untouched repository does not."""
    GOLD_FAILS = "gold_fails"
    """Its reference patch never resolves it, so no agent can on these machines."""
    IDLE_RESOLVES = "idle_resolves"
    """An untouched repository resolves it, so any agent does."""
    FLAKY = "flaky"
    """Its reference patch resolves it only sometimes, or only in a second run of its tests."""
    NOT_GRADEABLE = "not_gradeable"
    """Its row cannot be graded here and was not run: an unknown log parser, an empty list of tests."""
    INCOMPLETE = "incomplete"
    """Some of its runs have no verdict, and the others decide nothing."""


class ValidationResources(Part):
    """The sandboxes of a validation, as in its spec."""

    backend: str
    cpus: float | None
    memory_mb: int | None
    disk_mb: int | None
    resource_factor: float
    timeout_s: int
    """Time limit of the tests."""
    grading_network: bool
    machines: list[str]
    """``backend, isolation`` as recorded."""


class ValidatedInstance(Part):
    """An instance and the results of its runs."""

    instance_id: str
    row_sha256: str
    """Empty if it was not run."""
    image: str
    image_digest: str | None
    fitness: Fitness
    reason: str = ""
    """Why it is not valid, in one line."""
    gold: list[Outcome | None]
    """Outcomes of the gold runs, in order; None for a run without a verdict."""
    gold_resolved: int
    """Gold runs that resolved it in the first run of the tests."""
    second_runs: int = 0
    """Gold runs whose tests ran twice, because the first run broke the sandbox or was declared void."""
    idle: Outcome | None
    flaky_tests: dict[str, int] = {}
    """Listed test with different results in the gold runs -> gold runs without the expected result."""
    failing_tests: list[str] = []
    """Listed tests that had the expected result in no gold run."""
    passing_untouched: list[str] = []
    """FAIL_TO_PASS tests that pass in the untouched repository."""


class Validation(Record):
    """The validation of a dataset, or of a part of it, on one kind of machine."""

    file: ClassVar[str] = "validation.json"
    place: ClassVar[Place] = Place.VALIDATION
    format: Literal["swe-argo-validation-1"] = "swe-argo-validation-1"
    validation_id: str
    dataset: DatasetLock
    created_at: str
    """Time at which its gold run was planned."""
    gold_runs: int
    """Number of times each reference patch was graded."""
    resources: ValidationResources
    versions: dict[str, str]
    image_digests: dict[str, str]
    """Image -> digest, if known."""
    counts: dict[str, int]
    """Fitness -> number of instances."""
    instances: list[ValidatedInstance]

    @property
    def known_instances(self) -> list[ValidatedInstance]:
        """Return the instances whose fitness is decided."""
        return [instance for instance in self.instances if instance.fitness is not Fitness.INCOMPLETE]

    @property
    def complete(self) -> bool:
        """Whether the fitness of every instance is decided."""
        return not self.counts.get(Fitness.INCOMPLETE)

    @property
    @override
    def word(self) -> str:
        """Return the counts in words."""
        invalid = [f"{n:,} {name}" for name, n in self.counts.items() if n and name != Fitness.VALID]
        return ", ".join([f"{self.counts.get(Fitness.VALID, 0):,} of {len(self.instances):,} valid", *invalid])


def dataset_folder(dataset: str) -> str:
    """Return the folder of a dataset below ``validations/``."""
    name = dataset.rstrip("/").rpartition("/")[2] if dataset.startswith(("/", ".", "~", "s3:")) else dataset
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("/", "__")).strip(".")[-100:] or "dataset"


def validation_key(dataset: str, validation_id: str) -> str:
    """Return the store key of a validation."""
    return key(Validation, validation_id, name=dataset_folder(dataset))


def validation_of(run_id: str) -> str | None:
    """Return the validation to which a run belongs by its name; None if there is none."""
    name, _, part = run_id.rpartition(".")
    return name if part in (GOLD, IDLE) and name else None


def validation_run_id(validation_id: str, part: str) -> str:
    """Return the id of a validation's run ``GOLD`` or ``IDLE``."""
    return f"{validation_id}.{part}"
