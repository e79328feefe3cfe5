"""Test runs in fresh sandboxes, and their comparison with the expected results of tests and twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from swe_argo.steps.errors import InfraError
from swe_argo.steps.grading.bounded import SMALL_BYTES
from swe_argo.steps.grading.twins.sites import SiteChange, apply_changes
from swe_argo.steps.grading.twins.twin_tests import NoTwinsError, TestFile, TestReading, TwinTests
from swe_argo.steps.sandbox.protocol import Sandbox

OpenSandbox = Callable[[bool], AbstractContextManager[Sandbox]]
"""Creates a fresh sandbox, with a network or without one."""
MakeReference = Callable[[], tuple[bytes, str]]
"""A function that runs a reference that is a program, and returns its layer (empty if none) and its problem, if any."""
TRIES = 3
"""The number of tries of a run that the infrastructure ended."""
PASSING = frozenset({"PASSED", "XFAIL"})
FAILING = frozenset({"FAILED", "ERROR"})
SLOWER = 1.2
"""Changes that make the tests take longer by more than this factor are dropped."""
GRACE_S = 3.0
"""Seconds that failing tests may take to print the differences."""
_EXCERPT_LINES = 40


@dataclass(frozen=True)
class Expectation:
    """The expected results of one run.

    Attributes:
        contents: Test file -> its content in this run.
        twins: Test id -> the id that the log shows. These tests must fail.
        originals: The ids of the tests that must pass.
        unreported: The ids of the tests that the log does not report if they fail.
    """

    contents: Mapping[str, bytes]
    twins: Mapping[str, str]
    originals: frozenset[str]
    unreported: frozenset[str] = frozenset()

    @property
    def is_clear(self) -> bool:
        """Whether no two tests have the same id in the log."""
        log_ids = set(self.twins.values())
        return len(log_ids) == len(self.twins) and not log_ids & self.originals


def expect(
    tests: TwinTests,
    files: Iterable[TestFile],
    changes: Iterable[SiteChange],
    twins: Iterable[str],
    *,
    passed: set[str],
    unreported: Iterable[str] = (),
) -> Expectation:
    """Return the expected results of a run with the given changes.

    Raises:
        ValueError: The changes do not fit the files.
    """
    changes = list(changes)
    contents = {}
    log_ids = {test: test for test in twins}
    for file in files:
        here = [change for change in changes if change.site.path == file.path]
        if here:
            contents[file.path] = apply_changes(file.source, here)
        for change in here:
            for test in log_ids.keys() & file.sites.keys():
                if change.site in file.sites[test]:
                    log_ids[test] = tests.rename(test, change)
    return Expectation(contents, log_ids, frozenset(passed - log_ids.keys()), frozenset(unreported))


@dataclass(frozen=True)
class Surprise:
    """Unexpected results of a run; false if there are none.

    Attributes:
        passed_twins: Tests with a wrong expected value that passed.
        fallen: Tests that should have passed and did not, and twins without a result.
        problem: The reason why the run has no results.
        excerpt: The lines of the log on these tests, and its end.
    """

    passed_twins: frozenset[str] = frozenset()
    not_passed: frozenset[str] = frozenset()
    problem: str = ""
    excerpt: str = ""

    def __bool__(self) -> bool:
        return bool(self.passed_twins or self.not_passed or self.problem)


def compare(expected: Expectation, reading: TestReading, log: bytes) -> Surprise:
    """Return the differences between a run and its expected results."""
    if reading.problem:
        return Surprise(problem=reading.problem, excerpt=_excerpt(log, ()))
    statuses = reading.statuses
    passed_twins, fallen = set(), {test for test in expected.originals if statuses.get(test) != "PASSED"}
    for test, log_id in expected.twins.items():
        # A result under the old id counts, too, unless a twin has that id now.
        if statuses.get(log_id) in PASSING or (test not in expected.twins.values() and statuses.get(test) in PASSING):
            passed_twins.add(test)
        elif statuses.get(log_id, "absent" if test not in expected.unreported else "FAILED") not in FAILING:
            fallen.add(test)
    names = {*passed_twins, *fallen, *(expected.twins.get(test, test) for test in passed_twins | fallen)}
    return Surprise(frozenset(passed_twins), frozenset(fallen), excerpt=_excerpt(log, names) if names else "")


def _excerpt(log: bytes, names: Iterable[str]) -> str:
    """Return the lines of a log that contain one of the names, and the end of the log; both cut off."""
    # Lines of three bytes take thirty times their size: a longer log, which nobody reads, would fill the memory.
    lines = [line[:300] for line in log[-SMALL_BYTES:].decode(errors="replace").split("\n")]
    words = sorted(names)[:_EXCERPT_LINES]
    matches = [line for line in lines if any(word in line for word in words)]
    return "\n".join([*matches[:_EXCERPT_LINES], "# the end of the log", *lines[-_EXCERPT_LINES:]])


@dataclass(frozen=True)
class FinishedRun:
    """The result of one test run."""

    reading: TestReading
    log: bytes
    seconds: float
    base: Mapping[str, str | None]
    """The test files as ``TwinTests.read_base`` returns them."""
    had_network: bool


@dataclass
class TestRuns:
    """A runner that runs the tests of one instance, each time in a fresh sandbox, and counts the runs.

    Attributes:
        hide_answer: Hides things that a patch must not see in a prepared sandbox: the repository's history.
        make_reference: Makes a reference that is no patch (see ``MakeReference``); None if the tests have a patch.
        of_patch: Runs of the patch so far.
        of_reference: Runs of the reference patch, and of the untouched repository, so far.
        had_network: Whether a sandbox of the patch had a network, requested or not.
    """

    __test__ = False
    tests: TwinTests
    open_sandbox: OpenSandbox
    timeout_s: int
    folder: str
    hide_answer: Callable[[Sandbox], object] | None = None
    make_reference: MakeReference | None = None
    of_patch: int = field(default=0, init=False)
    of_reference: int = field(default=0, init=False)
    had_network: bool = field(default=False, init=False)
    _wait_s: float = 5.0

    def run(
        self,
        patch: bytes | None,
        contents: Mapping[str, bytes],
        *,
        base: Mapping[str, str | None] | None = None,
        network: bool = False,
        timeout_s: int | None = None,
    ) -> FinishedRun:
        """Run the tests with ``contents`` in place of the official files.

        Args:
            patch: The patch to apply; None for the untouched repository.
            contents: Test file -> content.
            base: Test file -> content, as ``TwinTests.read_base`` returns it; by default read in the fresh sandbox.
            network: Whether the sandbox has a network.
            timeout_s: The timeout of the tests, by default that of the official run.

        Raises:
            InfraError: The infrastructure failed in every try.
            ResourceError: The sandbox could not be created for lack of memory or disk.
        """
        self.of_patch += 1
        finished = self._run(lambda: patch, contents, base, network=network, timeout_s=timeout_s)
        self.had_network = self.had_network or finished.had_network
        return finished

    def run_reference(
        self,
        contents: Mapping[str, bytes],
        *,
        base: Mapping[str, str | None] | None = None,
        network: bool = False,
        timeout_s: int | None = None,
    ) -> FinishedRun:
        """Run the tests on the reference patch. See ``run``.

        Raises:
            NoTwinsError: The reference cannot be made.
        """
        self.of_reference += 1
        return self._run(lambda: self._reference, contents, base, network=network, timeout_s=timeout_s)

    def run_untouched(
        self,
        contents: Mapping[str, bytes],
        *,
        base: Mapping[str, str | None],
        network: bool,
        timeout_s: int | None = None,
    ) -> FinishedRun:
        """Run the tests without a patch. See ``run``."""
        self.of_reference += 1
        return self._run(lambda: None, contents, base, network=network, timeout_s=timeout_s)

    @cached_property
    def _reference(self) -> bytes:
        """The reference patch, or the layer that the reference makes. Raises NoTwinsError if it makes none."""
        if self.make_reference is None:
            return self.tests.reference
        reference, problem = self.make_reference()
        if not reference:
            raise NoTwinsError(problem or "the reference solution changes nothing")
        return reference

    def _run(
        self,
        get_patch: Callable[[], bytes | None],
        contents: Mapping[str, bytes],
        base: Mapping[str, str | None] | None,
        *,
        network: bool,
        timeout_s: int | None,
    ) -> FinishedRun:
        """Run the tests, up to TRIES times if the infrastructure fails; ``get_patch`` is called in each try."""
        again = Retrying(
            retry=retry_if_exception_type(InfraError),
            wait=wait_exponential_jitter(multiplier=self._wait_s, max=60, jitter=self._wait_s),
            stop=stop_after_attempt(TRIES),
            reraise=True,
        )
        return again(self._run_once, get_patch, contents, base, network=network, timeout_s=timeout_s or self.timeout_s)

    def _run_once(
        self,
        get_patch: Callable[[], bytes | None],
        contents: Mapping[str, bytes],
        base: Mapping[str, str | None] | None,
        *,
        network: bool,
        timeout_s: int,
    ) -> FinishedRun:
        """Run the tests in a fresh sandbox, with ``contents`` in place of the official files. See ``run``."""
        patch = get_patch()
        with self.open_sandbox(network) as box:
            had_network = box.machine.network
            self.tests.set_up(box)
            if base is None:
                base = self.tests.read_base(box)
            self.tests.put(box, contents)
            if self.hide_answer is not None:
                self.hide_answer(box)
            run = self.tests.run(box, base, contents, patch, timeout_s=timeout_s, folder=self.folder)
        log = run.log if run.log is not None else run.recorder.to_bytes()
        return FinishedRun(self.tests.read(run), log, run.seconds.get("tests", 0.0), base, had_network)
