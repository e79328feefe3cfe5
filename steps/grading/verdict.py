"""From what a run left to the unit's outcome: data where it is the patch's doing, an error where the world failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steps.contracts.failure import FailureClass
from steps.contracts.verdict import Evidence, Integrity, Outcome, TestCounts
from steps.errors import InfraError, ResourceError
from steps.grading.integrity import examine
from steps.grading.official import Graded
from steps.grading.run import Run
from steps.grading.saved import as_read, grade_text

OK = Integrity(verdict="ok")


@dataclass(frozen=True)
class Verdict:
    """What became of a patch, and why. ``graded`` is None where the harness writes no report."""

    outcome: Outcome
    integrity: Integrity
    graded: Graded | None = None
    evidence: Evidence | None = None

    @property
    def resolved(self) -> bool:
        """The official verdict; without a report it is no."""
        return self.graded is not None and bool(self.graded.inner["resolved"])

    @property
    def failure_reason(self) -> str | None:
        """swebench's guess at what broke a log that is not gradeable."""
        return self.graded.inner.get("infra_failure_reason") if self.graded else None

    def counts(self, which: str) -> TestCounts | None:
        """Passed and listed tests of ``FAIL_TO_PASS`` or ``PASS_TO_PASS``."""
        status = self._status(which)
        if status is None:
            return None
        passed = len(status["success"])
        return TestCounts(passed=passed, total=passed + len(status["failure"]))

    @property
    def failing_tests(self) -> list[str]:
        """Listed tests that did not pass, F2P first, each list in the row's order."""
        lists = [self._status("FAIL_TO_PASS"), self._status("PASS_TO_PASS")]
        return [test for status in lists if status for test in status["failure"]]

    def _status(self, which: str) -> dict[str, list[str]] | None:
        return self.graded.inner.get("tests_status", {}).get(which) if self.graded else None


def judge(run: Run, spec: Any, patch: bytes) -> Verdict:
    """The verdict on a run of the procedure, and its lines in the run's journal.

    Raises ResourceError or InfraError when the log is not gradeable and swebench sees the environment's fault in it.
    """
    if run.log is None:
        return Verdict(Outcome.PATCH_FAILED, OK)
    if run.timed_out:
        return Verdict(Outcome.TESTS_TIMED_OUT, OK)
    name = spec.instance_id
    run.journal.info(f"Grading answer for {name}...")
    text = run.log.decode()
    prediction = {"instance_id": name, "model_name_or_path": "", "model_patch": patch.decode(errors="replace")}
    graded = grade_text(spec, text, prediction)
    resolved = graded.inner["resolved"]
    run.journal.info(f"report: {graded.report}\nResult for {name}: resolved: {resolved}")
    evidence, integrity = examine(as_read(text), patch, spec, graded, heard=run.heard)
    if graded.inner["infra_failure"]:
        raise environment_failure(graded, name, text)
    if not graded.inner["patch_successfully_applied"]:
        outcome = Outcome.LOG_UNREADABLE
    else:
        outcome = Outcome.RESOLVED if resolved else Outcome.UNRESOLVED
    return Verdict(outcome, integrity, graded, evidence)


def environment_failure(graded: Graded, name: str, log: str) -> InfraError | ResourceError:
    """The error for a log that the environment broke (tier ``environment`` of swebench's infra_failure)."""
    reason, tail = graded.inner["infra_failure_reason"], log[-4000:]
    if reason == "out_of_memory":
        text = f"{name}: the tests ran out of memory before they ended (swebench: {reason})"
        return ResourceError(FailureClass.OUT_OF_MEMORY, text, detail=tail)
    text = f"{name}: the tests could not run in this sandbox (swebench: {reason})"
    return InfraError(FailureClass.TEST_ENVIRONMENT, text, detail=tail)
