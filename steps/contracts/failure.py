"""What a failed try leaves: whose failure it was, why, and what it cost."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from swe_argo.steps.contracts.record import Place, Raw, Record
from swe_argo.steps.contracts.trajectory import Usage


class FailureClass(StrEnum):
    """Whose failure it was, when it was not the agent's."""

    SANDBOX_CREATE = "sandbox_create"
    SANDBOX_LOST = "sandbox_lost"
    UNSCHEDULABLE = "unschedulable"
    ADMISSION = "admission"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    IMAGE_PULL = "image_pull"
    IMAGE_MISSING = "image_missing"
    EXEC = "exec"
    STORAGE = "storage"
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_DISK = "out_of_disk"
    TEST_ENVIRONMENT = "test_environment"
    MODEL = "model"
    """The model's endpoint failed: 429 and 5xx beyond all retries, timeouts, dropped connections."""
    MODEL_ACCESS = "model_access"
    """A key that is dead or a quota that is used up: nothing can be asked until somebody mends it."""
    ENGINE = "engine"
    """What runs the steps could not be asked, or does not do its part: no unit's, but that of who asked."""
    STEP_KILLED = "step_killed"
    STEP_TIMEOUT = "step_timeout"
    STOPPED = "stopped"
    """Nobody's: the run was stopped in the midst of it. The unit was not run, and did not fail."""
    CONFIG = "config"
    BUG = "bug"


OF_ENDPOINT = frozenset({FailureClass.MODEL, FailureClass.MODEL_ACCESS})
"""Failures of the model's endpoint: neither the agent's, nor of the machines and the store that a run has."""


class Failure(Record):
    """What a failed try leaves."""

    file: ClassVar[str] = "failure.json"
    place: ClassVar[Place] = Place.TRY
    step: str
    instance_id: str
    attempt: int
    failure_class: FailureClass
    reason: str
    """One line for a person."""
    detail: str = ""
    """What the infrastructure said, verbatim, or the traceback."""
    exit_code: int
    occurred_at: str
    seconds: float = 0.0
    resource_factor: float = Field(default=1.0, gt=0)
    usage: Usage = Usage()
    """What the try had spent on its model."""


class StepLog(Raw):
    """What the step of a failed try printed on stderr, its end."""

    file: ClassVar[str] = "step.log"
    place: ClassVar[Place] = Place.TRY
