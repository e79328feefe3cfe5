"""Grading of an agent's layer, by the reward of the task's verifier in a fresh machine with the layer's files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import OFFICIAL_TIMEOUT_S
from swe_argo.steps.contracts.verdict import Evidence, Finding, Integrity, Outcome
from swe_argo.steps.families.harbor import reward
from swe_argo.steps.families.harbor.findings import examine_layer
from swe_argo.steps.families.harbor.folders import unpack
from swe_argo.steps.families.harbor.machine import in_workdir, prepare_machine, put_folder
from swe_argo.steps.families.harbor.reward import WrittenReward, parse_reward
from swe_argo.steps.families.harbor.rows import TEST_SCRIPT, HarborTask
from swe_argo.steps.grading.instance_log import InstanceLogWriter
from swe_argo.steps.grading.procedure import MAX_LOG_BYTES, ProcedureRun, as_utf8
from swe_argo.steps.grading.twins.twin_tests import TwinTests
from swe_argo.steps.grading.verdict import RunDoubt, Verdict, weigh_broken_sandbox
from swe_argo.steps.layers.archive import BROKEN
from swe_argo.steps.layers.lay import apply_layer
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted

BLOCKED = ("/tests", "/solution", reward.FOLDER)
"""Folders that no layer may change: the verifier's files, and its output folder."""


@dataclass
class VerifierRun(ProcedureRun):
    """The results of a verifier run.

    Attributes:
        reward: The reward; None if the verifier did not finish.
        exit_code: The verifier's exit code; None if it did not finish.
        findings: The findings of the layer.
    """

    reward: WrittenReward | None = None
    exit_code: int | None = None
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class HarborGrader:
    """See ``Grader``: ``patch`` is a layer."""

    instance_id: str
    task: HarborTask
    browsers: bool = False
    twin_tests: TwinTests | None = None

    def run(
        self, box: Sandbox, patch: bytes | None, *, timeout_s: int, folder: str, machine_name: str, enlarged: bool
    ) -> VerifierRun:
        """Write the tests, apply the layer except for their folders, and run them.

        All our programs run in the machine before the layer is applied, which may replace them.
        """
        run = VerifierRun(InstanceLogWriter(), log_path=f"{folder}/run_instance.log")
        run.recorder.info(f"Container for {self.instance_id} started: {machine_name}")
        prepare_machine(box, self.task.workdir)
        put_folder(box, "/tests", unpack(self.task.tests))
        guarded = as_untrusted(box, enlarged=enlarged)
        try:
            if patch is not None and not self._apply_layer(guarded, patch, run):
                return run
            self._verify(guarded, run, timeout_s)
        except SandboxBroken as error:
            run.broken = error
            run.log = run.log if run.log is not None else as_utf8(error.output)
        except OSError as error:
            run.broken = SandboxBroken(FailureClass.EXEC, f"files in the sandbox block the verifier: {error}")
        if run.broken is not None:
            run.recorder.error(f"{run.broken.reason}\n{run.broken.detail}".strip())
        return run

    def _apply_layer(self, box: Sandbox, layer: bytes, run: VerifierRun) -> bool:
        """Apply the layer and examine it; return whether it could be read."""
        try:
            applied = apply_layer(box, layer, keep_out=BLOCKED)
        except SandboxBroken:
            raise
        except BROKEN as error:
            run.recorder.error(f"the layer cannot be read: {error}")
            return False
        run.recorder.info(
            f"layer: {len(applied.content.changed)} files written, {len(applied.content.deleted)} removed\n"
            f"{applied.output}".strip()
        )
        run.findings += examine_layer(applied.content, applied.blocked)
        return True

    def _verify(self, box: Sandbox, run: VerifierRun, timeout_s: int) -> None:
        """Run the verifier and read its reward; a run with the default timeout has the task's."""
        limit_s = timeout_s
        if timeout_s == OFFICIAL_TIMEOUT_S:
            limit_s = max(1, int(min(self.task.verifier_timeout_s, OFFICIAL_TIMEOUT_S)))
        command = in_workdir(self.task.workdir, f"/tests/{TEST_SCRIPT}")
        run.script, run.log = f"{command}\n".encode(), b""
        variables = self.task.verifier_variables
        result = box.exec(
            command, timeout_s=limit_s, cwd="/", env=variables, merge=True, max_output_bytes=MAX_LOG_BYTES
        )
        run.seconds["tests"] = round(result.seconds, 3)
        run.log, run.exit_code, run.timed_out = as_utf8(result.stdout), result.exit_code, result.timed_out
        if run.timed_out:
            run.log += f"\n\nTimeout error: {limit_s} seconds exceeded.".encode()
            return
        run.reward = parse_reward(_content(box, reward.TEXT), _content(box, reward.JSON))
        run.recorder.info(f"reward: {run.reward.value}, exit code {run.exit_code} {run.reward.problem}".strip())

    def judge(self, run: ProcedureRun, patch: bytes) -> Verdict:  # noqa: ARG002
        """Return the verdict by the verifier's reward. Without a reward, the run is repeated."""
        assert isinstance(run, VerifierRun)
        if run.log is None:
            return weigh_broken_sandbox(run, Verdict(Outcome.PATCH_FAILED, _weigh(run.findings, resolved=False)))
        if run.timed_out:
            return weigh_broken_sandbox(run, Verdict(Outcome.TESTS_TIMED_OUT, _weigh(run.findings, resolved=False)))
        written = run.reward or WrittenReward(None, problem="the verifier did not finish")
        evidence = Evidence(exit_code=run.exit_code, logged_exit_codes=[], start_markers=0, end_markers=0)
        if written.value is None:
            finding = Finding(code="verifier_gave_no_reward", detail=written.problem)
            verdict = Verdict(
                Outcome.NO_REWARD,
                _weigh([*run.findings, finding], resolved=False),
                report=self._report(written, resolved=False),
                failure_reason=written.problem,
                evidence=evidence,
                doubt=RunDoubt(written.problem, needs_resources=False),
            )
            return weigh_broken_sandbox(run, verdict)
        resolved = written.value >= 1
        verdict = Verdict(
            Outcome.RESOLVED if resolved else Outcome.UNRESOLVED,
            _weigh(run.findings, resolved=written.value > 0),  # a partial reward is not believed either
            reward=written.value,
            report=self._report(written, resolved=resolved),
            evidence=evidence,
        )
        return weigh_broken_sandbox(run, verdict)

    def _report(self, written: WrittenReward, *, resolved: bool) -> bytes:
        """Return the report in the harness' format."""
        report = {"resolved": resolved, "reward": written.value, "rewards": written.others, "problem": written.problem}
        return json.dumps({self.instance_id: report}, indent=4).encode()


def _content(box: Sandbox, path: str) -> bytes | None:
    """Return a file of the verifier, or None; for anything but a file return an error text, which is no number."""
    try:
        return box.read(path, max_bytes=reward.MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"<{error.strerror}>".encode()


def _weigh(findings: list[Finding], *, resolved: bool) -> Integrity:
    """Return the integrity; findings matter only for resolved layers."""
    return Integrity(verdict="suspect" if findings and resolved else "ok", findings=findings)
