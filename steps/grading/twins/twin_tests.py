"""TwinTests: a family's access to the tests that a confirmation changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from swe_argo.steps.grading.procedure import ProcedureRun
from swe_argo.steps.grading.twins.sites import Site, SiteChange
from swe_argo.steps.sandbox.protocol import Sandbox


@dataclass(frozen=True)
class TestFile:
    """A listed test file.

    Attributes:
        path: Its path in the repository.
        source: Its official content, with which the family grades.
        sites: Test id -> the constants of that test that can be changed.
    """

    path: str
    source: bytes
    sites: Mapping[str, Sequence[Site]]


@dataclass(frozen=True)
class TestReading:
    """The statuses of a run.

    Attributes:
        statuses: Test id -> PASSED, FAILED, ...; empty if the log is not readable.
        problem: The reason why the log is not readable; empty if it is.
        suspect_paths: Changed files beside the tests that raise findings.
    """

    statuses: Mapping[str, str]
    problem: str = ""
    suspect_paths: Sequence[str] = ()


class TwinTests(Protocol):
    """The tests of one instance, whose files can be given other contents.

    Attributes:
        instance_id: The instance.
        row_sha256: The hash of its row.
        reference: The reference patch; empty if it is made by running it (``TestRuns.make_reference``).
        fail_to_pass: The ids of the tests that fail without the reference patch; None if the row does not separate them
            from the others.
        pass_to_pass: The ids of the tests that pass with and without it, or of all that pass with it.
    """

    instance_id: str
    row_sha256: str
    reference: bytes
    fail_to_pass: Sequence[str] | None
    pass_to_pass: Sequence[str]

    def require_files(self) -> None:
        """Check, without a sandbox, whether there are test files that can be given other contents.

        Raises:
            NoTwinsError: There are none: the reason.
        """

    def set_up(self, box: Sandbox) -> None:
        """Prepare a fresh sandbox for a patch."""

    def read_base(self, box: Sandbox) -> dict[str, str | None]:
        """Return the test files of a prepared sandbox; None for a missing file."""

    def find_files(self, base: Mapping[str, str | None], passed: Sequence[str]) -> list[TestFile]:
        """Return the listed test files with the sites of the tests in ``passed``.

        Raises:
            NoTwinsError: There are none in ``base``.
        """

    def rename(self, test: str, change: SiteChange) -> str:
        """Return the id that a test has after a change: a parametrized id may contain the value."""

    def put(self, box: Sandbox, contents: Mapping[str, bytes]) -> None:
        """Write other contents to the test files that the sandbox holds."""

    def run(
        self,
        box: Sandbox,
        base: Mapping[str, str | None],
        contents: Mapping[str, bytes],
        patch: bytes | None,
        *,
        timeout_s: int,
        folder: str,
    ) -> ProcedureRun:
        """Apply ``patch`` in a prepared sandbox and run the official script with other contents of the test files."""

    def read(self, run: ProcedureRun) -> TestReading:
        """Return the statuses of the tests."""


def collect_sites(files: Iterable[TestFile]) -> dict[str, list[Site]]:
    """Return the sites of each test, of all files."""
    sites: dict[str, list[Site]] = defaultdict(list)
    for file in files:
        for test, test_sites in file.sites.items():
            sites[test].extend(test_sites)
    return sites


class NoTwinsError(ValueError):
    """Error for tests that cannot be changed; the message is the reason."""
