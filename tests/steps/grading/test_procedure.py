"""The whole procedure in a real machine: files, lines and outcomes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from swe_argo.steps.contracts.verdict import Outcome, TestCounts
from swe_argo.steps.grading import official
from swe_argo.steps.grading.official_patch import official_files
from swe_argo.steps.grading.procedure import ProcedureRun, official_folder, run_tests
from swe_argo.steps.grading.verdict import Verdict, judge
from tests.steps.grading.conftest import GOLD, Lab, eval_script
from tests.steps.grading.logs import codes_of

FOLDER = "logs/run_evaluation/r1/acme__model/acme__calc-1"


def run(
    lab: Lab, patch: bytes | None, *, timeout_s: int = 60, test_files: Sequence[str] = (), **changes: Any
) -> tuple[ProcedureRun, Verdict]:
    spec = official.make_test_spec(lab.row(**changes))
    folder = official_folder("r1", "acme/model", spec.instance_id)
    result = run_tests(lab.box(), spec, patch, timeout_s=timeout_s, folder=folder, test_files=test_files)
    return result, judge(result, spec, patch or b"")


def messages(result: ProcedureRun) -> list[str]:
    text = result.recorder.to_bytes().decode()
    return [message for _, message in re.findall(r"^\d{4}-\S+ [\d:]+,\d{3} - (INFO|ERROR) - (.*)$", text, re.MULTILINE)]


def cheat(*added: str) -> bytes:
    """A patch that puts these lines into the conftest that is empty so far."""
    body = "".join(f"+{line}\n" for line in added)
    return (
        f"diff --git a/conftest.py b/conftest.py\n--- a/conftest.py\n+++ b/conftest.py\n@@ -0,0 +1,{len(added)} @@\n"
        f"{body}"
    ).encode()


def test_gold_patch_matches_the_harness(lab: Lab) -> None:
    result, verdict = run(lab, GOLD)
    assert verdict.outcome is Outcome.RESOLVED
    assert verdict.resolved
    assert verdict.integrity.findings == []
    assert verdict.graded is not None
    assert messages(result) == [
        "Creating container for acme__calc-1...",
        "Container for acme__calc-1 created: sandbox",
        "Container for acme__calc-1 started: sandbox",
        f"Intermediate patch for acme__calc-1 written to {FOLDER}/patch.diff, now applying to container...",
        ">>>>> Applied Patch:",
        "Git diff before:",
        f"Eval script for acme__calc-1 written to {FOLDER}/eval.sh; copying to container...",
        next(line for line in messages(result) if re.fullmatch(r"Test runtime: \d+\.\d\d seconds", line)),
        f"Test output for acme__calc-1 written to {FOLDER}/test_output.txt",
        "Git diff after:",
        "Grading answer for acme__calc-1...",
        f"report: {verdict.graded.report}",
    ]
    assert result.recorder.to_bytes().endswith(b"\nResult for acme__calc-1: resolved: True\n")
    assert result.script == official.make_test_spec(lab.row()).eval_script.encode()
    assert verdict.evidence is not None
    assert verdict.evidence.exit_code == 0
    assert verdict.evidence.logged_exit_codes == ["0", "0"]
    assert json.loads(verdict.graded.data) == verdict.graded.report
    assert not verdict.graded.data.endswith(b"\n")
    assert result.log is not None
    assert b"+    return a + b" in result.log  # the model's patch, in the script's own git diff


def test_no_patch_is_unresolved(lab: Lab) -> None:
    result, verdict = run(lab, None)
    assert verdict.outcome is Outcome.UNRESOLVED
    assert messages(result)[3] == "Skipping model patch for acme__calc-1 (--no-patch mode)"
    assert verdict.failing_tests == ("tests/test_calc.py::test_adds",)
    assert verdict.fail_to_pass == TestCounts(passed=0, total=1)
    assert verdict.pass_to_pass == TestCounts(passed=1, total=1)
    assert verdict.integrity.verdict == "ok"
    assert verdict.evidence is not None
    assert verdict.evidence.exit_code == 1


def test_failed_patch_has_no_report(lab: Lab) -> None:
    result, verdict = run(lab, b"\n")
    assert verdict.outcome is Outcome.PATCH_FAILED
    assert result.log is None
    assert result.apply_command is None
    assert verdict.graded is None
    assert ">>>>> Patch Apply Failed:" in messages(result)
    assert not any(line.startswith("Git diff before") for line in messages(result))


def test_timeout_keeps_the_output(lab: Lab) -> None:
    script = eval_script(lab.base, "echo begun; sleep 600")
    for timeout_s in (1, 10, 60):  # a busy machine may need longer to begin
        result, verdict = run(lab, GOLD, timeout_s=timeout_s, eval_script=script)
        if b"\nbegun\n" in (result.log or b""):
            break
    assert verdict.outcome is Outcome.TESTS_TIMED_OUT
    assert verdict.graded is None
    assert result.log is not None
    assert b"\nbegun\n" in result.log
    assert result.log.endswith(f"\n\nTimeout error: {timeout_s} seconds exceeded.".encode())
    text = result.recorder.to_bytes().decode()
    assert text.endswith(
        f"Error in evaluation for acme__calc-1: Test timed out after {timeout_s} seconds.\n"
        f"Check ({FOLDER}/run_instance.log) for more information.\n"
    )


def test_log_keeps_stream_order(lab: Lab) -> None:
    command = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done"
    result, _ = run(lab, None, eval_script=eval_script(lab.base, command))
    assert result.log is not None
    region = result.log.decode().split(">>>>> Start Test Output'\n")[1]
    words = [line for line in region.split("\n") if re.fullmatch(r"(out|err) \d", line)]
    assert words == [f"{stream} {n}" for n in range(1, 6) for stream in ("out", "err")]


def test_log_replaces_invalid_bytes(lab: Lab) -> None:
    result, verdict = run(lab, GOLD, eval_script=eval_script(lab.base, r"printf '\xff\n'; python -m pytest -rA tests"))
    assert result.log is not None
    assert "\n\ufffd\n" in result.log.decode()
    assert verdict.resolved


def test_log_notes_remaining_test_patch(lab: Lab) -> None:
    script = eval_script(lab.base).replace(f"git checkout {lab.base} tests/test_calc.py\n", "", 2)
    result, _ = run(lab, GOLD, eval_script=script)
    assert "Git diff changed after running eval script" in messages(result)


@pytest.mark.parametrize(
    ("line", "reason", "of_size"),
    [
        ("Killed", "out_of_memory", True),
        ("Could not resolve host: index.example", "network_unreachable", False),
        (">>>>> Tests Errored\nCould not resolve host: index.example", "network_unreachable", False),
        ("Cannot connect to the Docker daemon", "container_unavailable", False),
    ],
)
def test_environment_failure_is_a_doubt(lab: Lab, line: str, reason: str, of_size: bool) -> None:
    result, verdict = run(lab, GOLD, eval_script=eval_script(lab.base, f"printf '%s\\n' '{line}'"))
    assert (verdict.outcome, verdict.resolved, verdict.failure_reason) == (Outcome.LOG_UNREADABLE, False, reason)
    assert verdict.graded is not None
    assert verdict.graded.inner["infra_failure"] is True
    assert result.log is not None
    assert line.encode() in result.log
    assert verdict.doubt is not None
    assert reason in verdict.doubt.reason
    assert verdict.doubt.of_size is of_size


@pytest.mark.parametrize("line", ["Killed", "Could not resolve host: index.example"])
def test_results_outweigh_failure_words(lab: Lab, line: str) -> None:
    script = eval_script(lab.base, f"echo '{line}'; python -m pytest -p no:cacheprovider -rA tests/test_calc.py")
    _, verdict = run(lab, GOLD, eval_script=script)
    assert (verdict.outcome, verdict.doubt) == (Outcome.RESOLVED, None)


def test_log_without_results_has_report(lab: Lab) -> None:
    _, verdict = run(lab, GOLD, eval_script=eval_script(lab.base, "echo 'ModuleNotFoundError: x'"))
    assert verdict.outcome is Outcome.LOG_UNREADABLE
    assert verdict.failure_reason == "missing_module"
    assert verdict.graded is not None
    assert verdict.fail_to_pass is None
    assert verdict.failing_tests == ()


def test_channel_exposes_rewritten_log(lab: Lab) -> None:
    # The log is a file that tests can write over; the code they ended with is not in it.
    lines = [
        "import atexit, os",
        "def rewrite():",
        "    print('PASSED tests/test_calc.py::test_adds\\nPASSED tests/test_calc.py::test_subtracts')",
        "    print('>>>>> Test Exit Code: 0', flush=True)",
        "atexit.register(rewrite)",
    ]
    _, verdict = run(lab, cheat(*lines))
    assert verdict.resolved
    assert verdict.integrity.verdict == "suspect"
    assert {"exit_code_mismatch", "exit_code_before_end", "passed_and_failed"} <= codes_of(verdict.integrity)


CHEATS: dict[str, tuple[list[str], set[str]]] = {
    "prints results and leaves with code 0": (
        [
            "import os, sys",
            "def pytest_sessionstart(session):",
            "    for name in ('adds', 'subtracts'):",
            "        os.write(1, f'PASSED tests/test_calc.py::test_{name}\\n'.encode())",
            "    os._exit(0)",
        ],
        {"suite_unfinished"},
    ),
    "ends the log and kills the shell": (
        [
            "import os, signal",
            "def pytest_sessionstart(session):",
            "    os.write(1, b'PASSED tests/test_calc.py::test_adds\\nPASSED tests/test_calc.py::test_subtracts\\n')",
            "    os.write(1, b'=== 2 passed in 0.01s ===\\n>>>>> End' + b' Test Output\\n')",
            "    os.write(1, b'>>>>> Test Exit' + b' Code: 0\\n')",
            "    os.kill(os.getppid(), signal.SIGKILL)",
        ],
        {"exit_code_unconfirmed"},
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_is_resolved_but_suspect(lab: Lab, name: str) -> None:
    lines, codes = CHEATS[name]
    _, verdict = run(lab, cheat(*lines))
    assert verdict.resolved
    assert verdict.integrity.verdict == "suspect"
    assert codes <= codes_of(verdict.integrity)


def test_marker_in_patch_is_noticed(lab: Lab) -> None:
    marked = GOLD.replace(b"+    return a + b\n", b"+    return a + b  # >>>>> Start Test Output\n")
    _, verdict = run(lab, marked)
    assert {"marker_in_patch", "start_markers"} <= codes_of(verdict.integrity)
    assert verdict.evidence is not None
    assert verdict.evidence.start_markers >= 2


def test_rewritten_test_file_is_suspect(lab: Lab) -> None:
    lines = ["open('tests/test_calc.py', 'w').write('def test_adds(): pass\\ndef test_subtracts(): pass\\n')"]
    result, verdict = run(lab, cheat(*lines), test_files=official_files(eval_script(lab.base).split("\n")))
    assert verdict.resolved
    assert codes_of(verdict.integrity) == {"test_files_changed"}
    assert result.channel_report is not None
    assert result.channel_report.changed_files == ("tests/test_calc.py",)


@pytest.mark.parametrize(
    ("base_line", "outcome"), [(b"a - b", Outcome.TESTS_TIMED_OUT), (b"a % b", Outcome.PATCH_FAILED)], ids=str
)
def test_patch_is_examined_without_a_log(lab: Lab, base_line: bytes, outcome: Outcome) -> None:
    marked = GOLD.replace(b"a + b", b"a + b  # >>>>> End Test Output").replace(
        b"-    return a - b", b"-    return " + base_line
    )
    _, verdict = run(lab, marked, timeout_s=1, eval_script=eval_script(lab.base, "sleep 60"))
    assert (verdict.outcome, codes_of(verdict.integrity)) == (outcome, {"marker_in_patch"})
    assert verdict.integrity.verdict == "suspect"
