"""The step as a process: files in, files and an exit code out."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import Answer, DatasetLock, Instance, Patch, RunFile
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.verdict import EvalScript, GradeRecord, InstanceLog, Outcome, Report, TestLog
from tests.forked_program import run_program
from tests.paths import ROOT
from tests.steps.grading import conftest
from tests.steps.grading.conftest import GOLD, IMAGE, Lab, eval_script

lab = conftest.lab
OFFICIAL = (TestLog, Report, InstanceLog, EvalScript)


class Unit:
    """A folder of inputs and one of outputs."""

    env: dict[str, str] = {}

    def __init__(self, lab: Lab, folder: Path, patch: bytes, agent: str = "gold", **changes: Any) -> None:
        self.inputs, self.outputs = folder / "in", folder / "out"
        self.inputs.mkdir()
        spec = RunSpec.model_validate(
            {
                "agent": {"name": agent},
                "sandbox": {"local": {"images": str(lab.images)}},
                "grading": {"timeout_s": changes.pop("timeout_s", 60), "confirm": changes.pop("confirm", "resolved")},
            }
        )
        lock = DatasetLock(name="made", split="test", revision=None, rows=1, sha256="0" * 64)
        run = RunFile(
            run_id="r1",
            spec=spec,
            dataset=lock,
            model="acme/model",
            versions={"swe-argo": "0.0.0"},
            created_at="2026-01-01T00:00:00+00:00",
            draw_key="0" * 64,
        )
        row = lab.row(**changes)
        common = {"instance_id": row["instance_id"], "repo": row["repo"], "version": row["version"], "image": IMAGE}
        instance = Instance(**common, base_commit=lab.base, problem_statement="adds wrongly")
        tests = {name: row[name] for name in ("eval_script", "FAIL_TO_PASS", "PASS_TO_PASS", "log_parser", "eval_type")}
        answer = Answer(**common, patch=GOLD.decode(), test_patch="", row_sha256="0" * 64, **tests)
        for datum in (run, instance, answer, Patch(patch)):
            (self.inputs / datum.file).write_bytes(datum.to_bytes())

    def grade(self) -> int:
        """Run the step; its exit code."""
        _, _, module, *words = self.command()
        result = run_program(module, words, ROOT, {**os.environ, **self.env})
        self.stderr = result.stderr
        return result.returncode

    def command(self) -> list[str]:
        """The step as a program."""
        return [sys.executable, "-m", "swe_argo.steps.grade", "--in", str(self.inputs), "--out", str(self.outputs)]

    @property
    def record(self) -> GradeRecord:
        return GradeRecord.from_bytes((self.outputs / GradeRecord.file).read_bytes())

    @property
    def official(self) -> set[str]:
        return {kind.file for kind in OFFICIAL if (self.outputs / kind.file).is_file()}


def test_grade_resolves_reference_patch(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, GOLD)
    assert unit.grade() == 0, unit.stderr
    record = unit.record
    assert record.outcome is Outcome.RESOLVED
    assert record.resolved
    assert record.integrity.verdict == "ok"
    assert record.apply_command == "git apply --verbose"
    assert record.evidence is not None
    assert record.evidence.exit_code == 0
    assert record.machine is not None
    assert record.machine.image == IMAGE
    assert set(record.seconds) == {"create", "apply", "tests", "grade"}
    assert record.patch_sha256 == hashlib.sha256(GOLD).hexdigest()
    assert record.versions["swebench"] == "5.0.2"
    assert record.fail_to_pass is not None
    assert (record.fail_to_pass.passed, record.fail_to_pass.total) == (1, 1)
    assert unit.official == {"test_output.txt", "report.json", "run_instance.log", "eval.sh"}
    report = json.loads((unit.outputs / "report.json").read_bytes())
    assert report["acme__calc-1"]["resolved"] is True
    recorder = (unit.outputs / "run_instance.log").read_text()
    assert "logs/run_evaluation/r1/acme__model/acme__calc-1/patch.diff" in recorder


def test_grade_runs_untouched_repository(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, b"", agent="idle")
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.UNRESOLVED
    assert unit.record.failing_tests == ["tests/test_calc.py::test_adds"]
    assert "--no-patch mode" in (unit.outputs / "run_instance.log").read_text()


def test_grade_skips_empty_patch(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, b"")
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.EMPTY_PATCH
    assert unit.record.machine is None
    assert unit.official == set()


def test_grade_rejects_blank_patch(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, b"\n")
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.PATCH_FAILED
    assert unit.official == {"run_instance.log"}


def test_grade_reports_timed_out_tests(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, GOLD, timeout_s=1, eval_script=eval_script(lab.base, "sleep 60"))
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.TESTS_TIMED_OUT
    assert unit.official == {"run_instance.log", "test_output.txt", "eval.sh"}


class Open(Unit):
    """Its sandboxes see this host, so that a script can know which run it is in."""

    env = {"SWE_ARGO_ISOLATION": "none"}


WORDS = "echo '>>>>> Tests Errored'; echo 'Could not resolve host: x'"
PYTEST = "python -m pytest -p no:cacheprovider -rA tests/test_calc.py"


@pytest.mark.parametrize("words", [WORDS, "echo Killed"])
def test_grade_reports_broken_sandbox(lab: Lab, tmp_path: Path, words: str) -> None:
    count = tmp_path / "runs"
    unit = Open(lab, tmp_path, GOLD, eval_script=eval_script(lab.base, f"echo run >>{count}; {words}"))
    assert unit.grade() == 0, unit.stderr
    assert (unit.record.outcome, unit.record.resolved) == (Outcome.LOG_UNREADABLE, False)
    assert unit.record.official_failure_reason in ("network_unreachable", "out_of_memory")
    assert unit.official == {"test_output.txt", "report.json", "run_instance.log", "eval.sh"}
    assert json.loads((unit.outputs / "report.json").read_bytes())["acme__calc-1"]["resolved"] is False
    assert count.read_text().split() == ["run", "run"]
    assert unit.record.machine is not None
    assert unit.record.machine.resource_factor == (2.0 if "Killed" in words else 1.0)


def test_second_run_verdict_is_suspect(lab: Lab, tmp_path: Path) -> None:
    """A patch that throws a dice: such words, else a cheat."""
    first = tmp_path / "first"
    dice = f"if mkdir {first} 2>/dev/null; then {WORDS}; else {PYTEST}; fi"
    unit = Open(lab, tmp_path, GOLD, eval_script=eval_script(lab.base, dice))
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.RESOLVED
    assert unit.record.integrity.verdict == "suspect"
    (finding,) = unit.record.integrity.findings
    assert finding.code == "second_run"
    assert "network_unreachable" in finding.detail


def test_second_run_hides_its_number(lab: Lab, tmp_path: Path) -> None:
    """A cluster shows the name inside, where it must not tell which run it is."""
    unit = Open(lab, tmp_path, GOLD, eval_script=eval_script(lab.base, WORDS))
    command = [*unit.command(), "--try", "20260101T000000123456"]
    env = {**os.environ, "PYTHONUTF8": "1", **unit.env}
    assert subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0
    created = (unit.outputs / "run_instance.log").read_text().partition(" created: local, try ")[2].split()[0]
    assert created != "20260101T000000123456"
    assert re.fullmatch(r"20260101T\d{12}", created)


def test_failed_second_run_is_unresolved(lab: Lab, tmp_path: Path) -> None:
    first = tmp_path / "first"
    unstable = f"if mkdir {first} 2>/dev/null; then {WORDS}; else {PYTEST}; fi"
    wrong = GOLD.replace(b"a + b", b"a * b")
    unit = Open(lab, tmp_path, wrong, eval_script=eval_script(lab.base, unstable))
    assert unit.grade() == 0, unit.stderr
    assert (unit.record.outcome, unit.record.integrity.verdict) == (Outcome.UNRESOLVED, "ok")


def test_grade_repeats_for_changed_patch(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, GOLD)
    assert unit.grade() == 0, unit.stderr
    (unit.inputs / Patch.file).write_bytes(GOLD.replace(b"a + b", b"a * b"))
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.UNRESOLVED
    assert unit.record.patch_sha256 != hashlib.sha256(GOLD).hexdigest()
