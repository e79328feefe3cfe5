"""What the chain must know of a family of tasks."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, Protocol, cast

from swe_argo.steps.contracts.data import Answer, Instance
from swe_argo.steps.contracts.families import FAMILIES, is_own_family
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.columns import RowColumns, SourceRow
from swe_argo.steps.grading.procedure import ProcedureRun
from swe_argo.steps.grading.twins.twin_tests import TwinTests
from swe_argo.steps.grading.verdict import Verdict
from swe_argo.steps.plugins import load
from swe_argo.steps.sandbox.protocol import Sandbox

Row = dict[str, Any]
"""A row in one shape: instance_id, repo, version, base_commit, image, problem_statement, hints_text, created_at and
patch (the reference) are str, and so is workdir of a family whose images have the repository elsewhere; what else it
has is its family's, which FAMILY_COLUMN names where it is not SWE-bench."""
FAMILY_COLUMN = "<family>"
"""No column of a dataset is called so."""

MACHINE_COLUMN = "<machine>"
"""Of rows whose task says what its machine is: the fields of ``TaskMachine``."""

FIELD = "family"
HandsOn = Literal["patch", "layer"]


class Grader(Protocol):
    """Grades what was handed on for one instance: ``patch`` is the layer where its family hands on layers.

    Attributes:
        browsers: Whether the tests start browsers, which takes more of a sandbox.
        twin_tests: The tests that a confirmation can change; None if the family has no confirmation.
    """

    browsers: bool
    twin_tests: TwinTests | None

    def run(
        self, box: Sandbox, patch: bytes | None, *, timeout_s: int, folder: str, machine_name: str, enlarged: bool
    ) -> ProcedureRun:
        """Apply ``patch`` (None: grade the untouched repository) in a fresh sandbox and run the tests.

        See ``swe_argo.steps.grading.procedure.run_tests``, for what it raises too.
        """

    def judge(self, run: ProcedureRun, patch: bytes) -> Verdict:
        """What became of the patch. What the tests printed is data, whatever it is."""


class Family(Protocol):
    """A family of tasks. None of it does any work when it is imported."""

    @property
    def columns(self) -> RowColumns:
        """What its rows are known by."""

    @property
    def hands_on(self) -> HandsOn:
        """What a solve gives to be graded: the patch of the repository, or all files that it changed."""

    def recognizes(self, row: SourceRow) -> bool:
        """Whether a row as its dataset has it is the family's, by its columns and no more than a look into them."""

    def normalise(self, row: Row, where: str) -> Row:
        """The row in one shape; ``where`` names its place in messages. Raises ConfigError naming the column."""

    def to_answer(self, row: Row) -> Answer:
        """What only grade may know of a normalised row."""

    def why_not_gradeable(self, row: Row) -> str | None:
        """Why a normalised row cannot be graded, or None where it can: ``plan`` says so before anything runs."""

    def prepare(self, box: Sandbox, instance: Instance) -> None:
        """Put a fresh sandbox into the state that an agent is to find: nothing of the answer in it, HEAD the start.

        Called before the history is hidden (or files are listed), where an agent is to work. Raises InfraError,
        ResourceError.
        """

    def make_grader(self, instance: Instance, answer: Answer) -> Grader:
        """The grader of one instance. Raises ConfigError where its answer lacks something."""


class LayerFamily(Family, Protocol):
    """A family that hands on layers. Its reference is no patch: it is run in a machine of its own, as an agent is."""

    def has_reference(self, row: Row) -> bool:
        """Whether a normalised row has one."""

    def run_reference(self, box: Sandbox, instance: Instance, answer: Answer) -> str:
        """Solve the task as its reference does, in a prepared machine; what is to be said of it, empty where it ended
        well. Raises InfraError, ResourceError."""


def load_family(name: str) -> Family:
    """A family by name, or one's own. Raises ConfigError where there is none of that name."""
    if is_own_family(name):
        return cast(Family, load(name, FIELD))
    if name not in FAMILIES:
        raise ConfigError(f"there is no family of tasks {name!r}; there are {', '.join(FAMILIES)}", field=FIELD)
    return cast(Family, import_module(FAMILIES[name]).FAMILY)
