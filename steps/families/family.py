"""The interface of a family of tasks to the chain of steps."""

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
patch (the reference) are str; so is workdir, in families whose images have the repository elsewhere. All other columns
are the family's, which FAMILY_COLUMN names if it is not SWE-bench."""
FAMILY_COLUMN = "<family>"
"""A name that no column of a dataset has."""

MACHINE_COLUMN = "<machine>"
"""The fields of ``TaskMachine``, in rows whose task describes its machine."""

FIELD = "family"
HandsOn = Literal["patch", "layer"]


class Grader(Protocol):
    """A grader of the submission for one instance; ``patch`` is a layer in families that submit layers.

    Attributes:
        browsers: Whether the tests start browsers, which need more of a sandbox.
        twin_tests: The tests that a confirmation can change; None if the family has no confirmation.
    """

    browsers: bool
    twin_tests: TwinTests | None

    def run(
        self, box: Sandbox, patch: bytes | None, *, timeout_s: int, folder: str, machine_name: str, enlarged: bool
    ) -> ProcedureRun:
        """Apply ``patch`` (None: grade the untouched repository) in a fresh sandbox and run the tests.

        See ``swe_argo.steps.grading.procedure.run_tests``, also for its errors.
        """

    def judge(self, run: ProcedureRun, patch: bytes) -> Verdict:
        """Return the verdict on the patch. The output of the tests is data, whatever it is."""


class Family(Protocol):
    """A family of tasks. Its import does no work."""

    @property
    def columns(self) -> RowColumns:
        """The columns by which its rows are recognized."""

    @property
    def hands_on(self) -> HandsOn:
        """The submission of a solve for grading: the patch of the repository, or all files that it changed."""

    def recognizes(self, row: SourceRow) -> bool:
        """Return whether a row of a dataset belongs to the family, by its columns and at most a look into them."""

    def normalise(self, row: Row, where: str) -> Row:
        """Return the row in one shape; ``where`` is its place in messages. Raises ConfigError naming the column."""

    def to_answer(self, row: Row) -> Answer:
        """Return the parts of a normalised row that only grade may know."""

    def why_not_gradeable(self, row: Row) -> str | None:
        """Return why a normalised row cannot be graded, or None; ``plan`` reports it before anything runs."""

    def prepare(self, box: Sandbox, instance: Instance) -> None:
        """Put a fresh sandbox into the state for an agent: nothing of the answer in it, HEAD at the start.

        Called for an agent's sandbox, before the history is hidden (or files are listed). Raises InfraError,
        ResourceError.
        """

    def make_grader(self, instance: Instance, answer: Answer) -> Grader:
        """Return the grader of one instance. Raises ConfigError if its answer lacks something."""


class LayerFamily(Family, Protocol):
    """A family that submits layers. Its reference is no patch: it runs in a machine of its own, as an agent does."""

    def has_reference(self, row: Row) -> bool:
        """Return whether a normalised row has a reference."""

    def run_reference(self, box: Sandbox, instance: Instance, answer: Answer) -> str:
        """Solve the task with its reference; return an error message or nothing. Raises InfraError, ResourceError."""


def load_family(name: str) -> Family:
    """Return a family by name, or a user's own. Raises ConfigError if there is none of that name."""
    if is_own_family(name):
        return cast(Family, load(name, FIELD))
    if name not in FAMILIES:
        raise ConfigError(f"there is no family of tasks {name!r}; there are {', '.join(FAMILIES)}", field=FIELD)
    return cast(Family, import_module(FAMILIES[name]).FAMILY)
