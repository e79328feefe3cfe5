"""Grading of a patch by the swebench library, as in the swebench harness."""

from __future__ import annotations

from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.families.swebench.answer import SweBenchAnswer
from swe_argo.steps.families.swebench.twin_tests import make_twin_tests
from swe_argo.steps.grading import official
from swe_argo.steps.grading.official_patch import official_files
from swe_argo.steps.grading.procedure import ProcedureRun, run_tests
from swe_argo.steps.grading.verdict import Verdict, judge
from swe_argo.steps.sandbox.protocol import Sandbox


class SweBenchGrader:
    """See ``Grader``."""

    def __init__(self, instance: Instance, answer: SweBenchAnswer) -> None:
        self.browsers = bool(answer.image_assets)
        self.twin_tests = make_twin_tests(answer, instance.base_commit)
        self._spec = official.make_test_spec(answer.row())

    def run(
        self, box: Sandbox, patch: bytes | None, *, timeout_s: int, folder: str, machine_name: str, enlarged: bool
    ) -> ProcedureRun:
        """Run the harness's procedure."""
        return run_tests(
            box,
            self._spec,
            patch,
            timeout_s=timeout_s,
            folder=folder,
            machine_name=machine_name,
            enlarged=enlarged,
            test_files=official_files(self._spec.eval_script_list),
        )

    def judge(self, run: ProcedureRun, patch: bytes) -> Verdict:
        """Return the official verdict, and its integrity."""
        return judge(run, self._spec, patch)
