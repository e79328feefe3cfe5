"""Twin tests of a Harbor task: its verifier, with a wrong value in one Python test."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from swe_argo.steps.families.harbor.folders import read_files, replace_files
from swe_argo.steps.families.harbor.grader import HarborGrader, VerifierRun
from swe_argo.steps.families.harbor.rows import SOLVE_SCRIPT, TEST_SCRIPT, HarborTask
from swe_argo.steps.grading.procedure import ProcedureRun
from swe_argo.steps.grading.twins.expectations import Module
from swe_argo.steps.grading.twins.sites import SiteChange, find_sites
from swe_argo.steps.grading.twins.syntax import Function, parse_quietly
from swe_argo.steps.grading.twins.twin_tests import NoTwinsError, TestFile, TestReading
from swe_argo.steps.sandbox.protocol import Sandbox

_FOLDER = "tests/"
VERIFIER = f"{_FOLDER}{TEST_SCRIPT}"
"""The id of the only test."""


class HarborTwinTests:
    """See ``TwinTests``. A task has one test, the verifier, which passes if its reward is at least 1.

    Its sites are in all test functions of the Python files in ``tests/``. A twin has one wrong value in one function,
    which also detects a layer that fakes only some functions. Reading all values reveals no more than reading one
    (``draws.bound_chance``), since all but one are right in every run. Confirmations, originals and twins alike, run
    without assertion messages, which often repeat the expected value.
    """

    def __init__(self, instance_id: str, row_sha256: str, task: HarborTask) -> None:
        self.instance_id = instance_id
        self.row_sha256 = row_sha256
        self.reference = b""
        self.fail_to_pass: Sequence[str] | None = (VERIFIER,)
        self.pass_to_pass: Sequence[str] = ()
        self._task = task

    @cached_property
    def _sources(self) -> dict[str, bytes]:
        """The Python files of the tests by path, without assertion messages."""
        files = read_files(self._task.tests)
        return {f"{_FOLDER}{name}": _drop_messages(data) for name, data in files.items() if name.endswith(".py")}

    def require_files(self) -> None:
        """See ``TwinTests``. Requires a solution, whose findings are excused."""
        if not self._task.solution:
            raise NoTwinsError(f"the task has no solution/{SOLVE_SCRIPT}")

    def read_base(self, box: Sandbox) -> dict[str, str | None]:  # noqa: ARG002
        """See ``TwinTests``. The verifier's files are not in the image."""
        return dict.fromkeys(self._sources)

    def find_files(self, base: Mapping[str, str | None], passed: Sequence[str]) -> list[TestFile]:  # noqa: ARG002
        """See ``TwinTests``."""
        files = []
        for path, source in self._sources.items():
            # Listed as PASS_TO_PASS tests: sites of FAIL_TO_PASS tests must be on lines that a patch adds.
            sites = [site for site in find_sites(path, source, pass_to_pass=set(_list_tests(source))) if site.strong]
            if sites:
                files.append(TestFile(path, source, {VERIFIER: sites}))
        if not files:
            raise NoTwinsError("no Python file in tests/ has an assertion with a constant that can be changed")
        return files

    def rename(self, test: str, change: SiteChange) -> str:  # noqa: ARG002
        """See ``TwinTests``."""
        return test

    def set_up(self, box: Sandbox) -> None:
        """See ``TwinTests``. The grader prepares the machine."""

    def put(self, box: Sandbox, contents: Mapping[str, bytes]) -> None:
        """See ``TwinTests``. The grader writes the verifier's files."""

    def run(
        self,
        box: Sandbox,
        base: Mapping[str, str | None],  # noqa: ARG002
        contents: Mapping[str, bytes],
        patch: bytes | None,
        *,
        timeout_s: int,
        folder: str,
    ) -> ProcedureRun:
        """See ``TwinTests``."""
        changed = {path.removeprefix(_FOLDER): data for path, data in {**self._sources, **contents}.items()}
        task = self._task.model_copy(update={"tests": replace_files(self._task.tests, changed)})
        grader = HarborGrader(self.instance_id, task)
        # The first run had enough memory and disk, so a layer that runs out of them now does so on purpose.
        return grader.run(box, patch, timeout_s=timeout_s, folder=folder, machine_name="", enlarged=True)

    def read(self, run: ProcedureRun) -> TestReading:
        """See ``TwinTests``. A verifier without a reward counts as failed, as scripts end at the first error."""
        assert isinstance(run, VerifierRun)
        if problem := _describe_end(run):
            return TestReading({}, problem)
        has_passed = run.reward is not None and run.reward.value is not None and run.reward.value >= 1
        paths = [path for finding in run.findings for path in finding.paths]
        return TestReading({VERIFIER: "PASSED" if has_passed else "FAILED"}, suspect_paths=paths)


def _describe_end(run: VerifierRun) -> str:
    """Return why a run has no result; empty if the verifier finished."""
    if run.broken is not None:
        return run.broken.reason
    if run.log is None:
        return "the layer cannot be applied"
    if run.timed_out:
        return "the verifier timed out"
    return "" if run.exit_code is not None else "the verifier did not finish"


def _drop_messages(source: bytes) -> bytes:
    """Return a test file with empty assertion messages; unchanged if it has no test function."""
    module = Module.parse(source)
    if module is None or not any(_list_tests(source)):
        return source
    asserts = [node for node in ast.walk(module.tree) if isinstance(node, ast.Assert)]
    changed = source
    for start, end in sorted((module.locate(node.msg) for node in asserts if node.msg is not None), reverse=True):
        changed = changed[:start] + b'""' + changed[end:]
    return source if parse_quietly(changed) is None else changed


def _list_tests(source: bytes) -> Iterator[str]:
    """Yield the qualified names of the test functions of a file."""
    tree = parse_quietly(source)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, Function) and part.name.startswith("test"):
                    yield f"{node.name}.{part.name}"
        elif isinstance(node, Function) and node.name.startswith("test"):
            yield node.name
