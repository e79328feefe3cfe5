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
    left = run_tests(lab.box(), spec, patch, timeout_s=timeout_s, folder=folder, test_files=test_files)
    return left, judge(left, spec, patch or b"")


def messages(left: ProcedureRun) -> list[str]:
    text = left.journal.to_bytes().decode()
    return [message for _, message in re.findall(r"^\d{4}-\S+ [\d:]+,\d{3} - (INFO|ERROR) - (.*)$", text, re.MULTILINE)]


def cheat(*added: str) -> bytes:
    """A patch that puts these lines into the conftest that is empty so far."""
    body = "".join(f"+{line}\n" for line in added)
    return (
        f"diff --git a/conftest.py b/conftest.py\n--- a/conftest.py\n+++ b/conftest.py\n@@ -0,0 +1,{len(added)} @@\n"
        f"{body}"
    ).encode()


def test_the_gold_patch_is_resolved_and_everything_is_written_as_the_harness_does(lab: Lab) -> None:
    left, verdict = run(lab, GOLD)
    assert verdict.outcome is Outcome.RESOLVED
    assert verdict.resolved
    assert verdict.integrity.findings == []
    assert verdict.graded is not None
    assert messages(left) == [
        "Creating container for acme__calc-1...",
        "Container for acme__calc-1 created: sandbox",
        "Container for acme__calc-1 started: sandbox",
        f"Intermediate patch for acme__calc-1 written to {FOLDER}/patch.diff, now applying to container...",
        ">>>>> Applied Patch:",
        "Git diff before:",
        f"Eval script for acme__calc-1 written to {FOLDER}/eval.sh; copying to container...",
        next(line for line in messages(left) if re.fullmatch(r"Test runtime: \d+\.\d\d seconds", line)),
        f"Test output for acme__calc-1 written to {FOLDER}/test_output.txt",
        "Git diff after:",
        "Grading answer for acme__calc-1...",
        f"report: {verdict.graded.report}",
    ]
    assert left.journal.to_bytes().endswith(b"\nResult for acme__calc-1: resolved: True\n")
    assert left.script == official.make_test_spec(lab.row()).eval_script.encode()
    assert verdict.evidence is not None
    assert verdict.evidence.exit_code == 0
    assert verdict.evidence.logged_exit_codes == ["0", "0"]
    assert json.loads(verdict.graded.data) == verdict.graded.report
    assert not verdict.graded.data.endswith(b"\n")
    assert left.log is not None
    assert b"+    return a + b" in left.log  # the model's patch, in the script's own git diff


def test_the_untouched_repository_is_unresolved_and_no_patch_is_looked_for(lab: Lab) -> None:
    left, verdict = run(lab, None)
    assert verdict.outcome is Outcome.UNRESOLVED
    assert messages(left)[3] == "Skipping model patch for acme__calc-1 (--no-patch mode)"
    assert verdict.failing_tests == ("tests/test_calc.py::test_adds",)
    assert verdict.fail_to_pass == TestCounts(passed=0, total=1)
    assert verdict.pass_to_pass == TestCounts(passed=1, total=1)
    assert verdict.integrity.verdict == "ok"
    assert verdict.evidence is not None
    assert verdict.evidence.exit_code == 1


def test_a_patch_that_does_not_apply_leaves_neither_log_nor_report(lab: Lab) -> None:
    left, verdict = run(lab, b"\n")
    assert verdict.outcome is Outcome.PATCH_FAILED
    assert left.log is None
    assert left.apply_command is None
    assert verdict.graded is None
    assert ">>>>> Patch Apply Failed:" in messages(left)
    assert not any(line.startswith("Git diff before") for line in messages(left))


def test_tests_that_take_too_long_keep_their_output_and_get_no_report(lab: Lab) -> None:
    script = eval_script(lab.base, "echo begun; sleep 600")
    for timeout_s in (1, 10, 60):  # a busy machine may need longer to begin
        left, verdict = run(lab, GOLD, timeout_s=timeout_s, eval_script=script)
        if b"\nbegun\n" in (left.log or b""):
            break
    assert verdict.outcome is Outcome.TESTS_TIMED_OUT
    assert verdict.graded is None
    assert left.log is not None
    assert b"\nbegun\n" in left.log
    assert left.log.endswith(f"\n\nTimeout error: {timeout_s} seconds exceeded.".encode())
    text = left.journal.to_bytes().decode()
    assert text.endswith(
        f"Error in evaluation for acme__calc-1: Test timed out after {timeout_s} seconds.\n"
        f"Check ({FOLDER}/run_instance.log) for more information.\n"
    )


def test_both_streams_are_in_the_log_in_the_order_they_were_written(lab: Lab) -> None:
    command = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done"
    left, _ = run(lab, None, eval_script=eval_script(lab.base, command))
    assert left.log is not None
    region = left.log.decode().split(">>>>> Start Test Output'\n")[1]
    words = [line for line in region.split("\n") if re.fullmatch(r"(out|err) \d", line)]
    assert words == [f"{stream} {n}" for n in range(1, 6) for stream in ("out", "err")]


def test_bytes_that_are_no_text_are_replaced_in_the_log(lab: Lab) -> None:
    left, verdict = run(lab, GOLD, eval_script=eval_script(lab.base, r"printf '\xff\n'; python -m pytest -rA tests"))
    assert left.log is not None
    assert "\n\ufffd\n" in left.log.decode()
    assert verdict.resolved


def test_the_test_patch_stays_when_the_script_ends_early_and_the_log_says_so(lab: Lab) -> None:
    script = eval_script(lab.base).replace(f"git checkout {lab.base} tests/test_calc.py\n", "", 2)
    left, _ = run(lab, GOLD, eval_script=script)
    assert "Git diff changed after running eval script" in messages(left)


@pytest.mark.parametrize(
    ("line", "reason", "of_size"),
    [
        ("Killed", "out_of_memory", True),
        ("Could not resolve host: index.example", "network_unreachable", False),
        (">>>>> Tests Errored\nCould not resolve host: index.example", "network_unreachable", False),
        ("Cannot connect to the Docker daemon", "container_unavailable", False),
    ],
)
def test_words_of_a_broken_environment_are_a_doubt_and_their_report_is_the_harness_own(
    lab: Lab, line: str, reason: str, of_size: bool
) -> None:
    left, verdict = run(lab, GOLD, eval_script=eval_script(lab.base, f"printf '%s\\n' '{line}'"))
    assert (verdict.outcome, verdict.resolved, verdict.failure_reason) == (Outcome.LOG_UNREADABLE, False, reason)
    assert verdict.graded is not None
    assert verdict.graded.inner["infra_failure"] is True
    assert left.log is not None
    assert line.encode() in left.log
    assert verdict.doubt is not None
    assert reason in verdict.doubt.reason
    assert verdict.doubt.of_size is of_size


@pytest.mark.parametrize("line", ["Killed", "Could not resolve host: index.example"])
def test_the_same_words_beside_results_are_no_doubt(lab: Lab, line: str) -> None:
    script = eval_script(lab.base, f"echo '{line}'; python -m pytest -p no:cacheprovider -rA tests/test_calc.py")
    _, verdict = run(lab, GOLD, eval_script=script)
    assert (verdict.outcome, verdict.doubt) == (Outcome.RESOLVED, None)


def test_a_log_without_results_is_not_gradeable_and_keeps_its_report(lab: Lab) -> None:
    _, verdict = run(lab, GOLD, eval_script=eval_script(lab.base, "echo 'ModuleNotFoundError: x'"))
    assert verdict.outcome is Outcome.LOG_UNREADABLE
    assert verdict.failure_reason == "missing_module"
    assert verdict.graded is not None
    assert verdict.fail_to_pass is None
    assert verdict.failing_tests == ()


def test_a_deleted_start_of_the_log_cannot_hide_from_the_second_channel(lab: Lab) -> None:
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
def test_a_patch_that_cheats_is_resolved_officially_and_suspect_to_us(lab: Lab, name: str) -> None:
    lines, codes = CHEATS[name]
    _, verdict = run(lab, cheat(*lines))
    assert verdict.resolved
    assert verdict.integrity.verdict == "suspect"
    assert codes <= codes_of(verdict.integrity)


def test_marker_text_in_the_patch_moves_the_graded_region_and_is_noticed(lab: Lab) -> None:
    marked = GOLD.replace(b"+    return a + b\n", b"+    return a + b  # >>>>> Start Test Output\n")
    _, verdict = run(lab, marked)
    assert {"marker_in_patch", "start_markers"} <= codes_of(verdict.integrity)
    assert verdict.evidence is not None
    assert verdict.evidence.start_markers >= 2


def test_patch_rewriting_a_test_file_is_suspect(lab: Lab) -> None:
    lines = ["open('tests/test_calc.py', 'w').write('def test_adds(): pass\\ndef test_subtracts(): pass\\n')"]
    left, verdict = run(lab, cheat(*lines), test_files=official_files(eval_script(lab.base).split("\n")))
    assert verdict.resolved
    assert codes_of(verdict.integrity) == {"test_files_changed"}
    assert left.channel_report is not None
    assert left.channel_report.changed_files == ("tests/test_calc.py",)


@pytest.mark.parametrize(
    ("is_there", "outcome"), [(b"a - b", Outcome.TESTS_TIMED_OUT), (b"a % b", Outcome.PATCH_FAILED)], ids=str
)
def test_patch_is_examined_without_a_graded_log(lab: Lab, is_there: bytes, outcome: Outcome) -> None:
    marked = GOLD.replace(b"a + b", b"a + b  # >>>>> End Test Output").replace(
        b"-    return a - b", b"-    return " + is_there
    )
    _, verdict = run(lab, marked, timeout_s=1, eval_script=eval_script(lab.base, "sleep 60"))
    assert (verdict.outcome, codes_of(verdict.integrity)) == (outcome, {"marker_in_patch"})
    assert verdict.integrity.verdict == "suspect"
