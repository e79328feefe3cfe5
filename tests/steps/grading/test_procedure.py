"""The whole procedure in a real machine: files, lines and outcomes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from swe_argo.steps.contracts.verdict import Outcome, TestCounts
from swe_argo.steps.errors import InfraError
from swe_argo.steps.grading import official
from swe_argo.steps.grading.official_patch import official_files
from swe_argo.steps.grading.procedure import ProcedureRun, official_folder, run_tests
from swe_argo.steps.grading.verdict import Verdict, judge
from tests.http_server import Handler, serve
from tests.steps.grading.conftest import GOLD, Lab, eval_script
from tests.steps.grading.logs import F2P, P2P, codes_of

FOLDER = "logs/run_evaluation/r1/acme__model/acme__calc-1"
PASSES = f"echo PASSED {F2P}; echo PASSED {P2P}; echo === 2 passed in 0.01s ==="
"""Prints what pytest prints of the fixed repository, in a thousandth of the time."""


def run(
    lab: Lab,
    patch: bytes | None,
    command: str | None = None,
    *,
    timeout_s: int = 60,
    test_files: Sequence[str] = (),
    **changes: Any,
) -> tuple[ProcedureRun, Verdict]:
    script = {"eval_script": eval_script(lab.base, command)} if command else {}
    spec = official.make_test_spec(lab.row(**script, **changes))
    folder = official_folder("r1", "acme/model", spec.instance_id)
    result = run_tests(lab.box(), spec, patch, timeout_s=timeout_s, folder=folder, test_files=test_files)
    return result, judge(result, spec, patch or b"")


def messages(result: ProcedureRun) -> list[str]:
    text = result.recorder.to_bytes().decode()
    return [message for _, message in re.findall(r"^\d{4}-\S+ [\d:]+,\d{3} - (INFO|ERROR) - (.*)$", text, re.MULTILINE)]


def cheat(*added: str) -> bytes:
    """Return a patch that puts these lines into the conftest, which is empty so far."""
    body = "".join(f"+{line}\n" for line in added)
    path = "diff --git a/conftest.py b/conftest.py\n--- a/conftest.py\n+++ b/conftest.py\n"
    return f"{path}@@ -0,0 +1,{len(added)} @@\n{body}".encode()


def test_gold_patch_matches_the_harness(lab: Lab) -> None:
    result, verdict = run(lab, GOLD)
    assert (verdict.outcome, verdict.resolved, verdict.integrity.findings) == (Outcome.RESOLVED, True, [])
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
    assert (verdict.evidence.exit_code, verdict.evidence.logged_exit_codes) == (0, ["0", "0"])
    assert json.loads(verdict.graded.data) == verdict.graded.report
    assert not verdict.graded.data.endswith(b"\n")
    assert b"+    return a + b" in (result.log or b"")  # the model's patch, in the script's own git diff


def test_no_patch_is_unresolved(lab: Lab) -> None:
    result, verdict = run(lab, None)
    assert messages(result)[3] == "Skipping model patch for acme__calc-1 (--no-patch mode)"
    assert (verdict.outcome, verdict.failing_tests, verdict.integrity.verdict) == (Outcome.UNRESOLVED, (F2P,), "ok")
    assert (verdict.fail_to_pass, verdict.pass_to_pass) == (
        TestCounts(passed=0, total=1),
        TestCounts(passed=1, total=1),
    )
    assert verdict.evidence is not None
    assert verdict.evidence.exit_code == 1


def test_timeout_keeps_the_output(lab: Lab) -> None:
    for timeout_s in (1, 10, 60):  # a busy machine may need longer to begin
        result, verdict = run(lab, GOLD, "echo begun; sleep 600", timeout_s=timeout_s)
        if b"\nbegun\n" in (result.log or b""):
            break
    assert (verdict.outcome, verdict.graded) == (Outcome.TESTS_TIMED_OUT, None)
    assert result.log is not None
    assert b"\nbegun\n" in result.log
    assert result.log.endswith(f"\n\nTimeout error: {timeout_s} seconds exceeded.".encode())
    text = result.recorder.to_bytes().decode()
    assert text.endswith(
        f"Error in evaluation for acme__calc-1: Test timed out after {timeout_s} seconds.\n"
        f"Check ({FOLDER}/run_instance.log) for more information.\n"
    )


def test_log_keeps_order_and_replaces_bytes(lab: Lab) -> None:
    streams = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done"
    result, verdict = run(lab, GOLD, rf"{streams}; printf '\xff\n'; {PASSES}")
    text = (result.log or b"").decode()
    words = re.findall(r"^((?:out|err) \d)$", text.split(">>>>> Start Test Output'\n")[1], re.MULTILINE)
    assert words == [f"{stream} {n}" for n in range(1, 6) for stream in ("out", "err")]
    assert "\n\ufffd\n" in text
    assert verdict.resolved


def test_log_notes_remaining_test_patch(lab: Lab) -> None:
    script = eval_script(lab.base, "true").replace(f"git checkout {lab.base} tests/test_calc.py\n", "", 2)
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
    result, verdict = run(lab, GOLD, f"printf '%s\\n' '{line}'")
    assert (verdict.outcome, verdict.resolved, verdict.failure_reason) == (Outcome.LOG_UNREADABLE, False, reason)
    assert verdict.graded is not None
    assert verdict.graded.inner["infra_failure"] is True
    assert line.encode() in (result.log or b"")
    assert verdict.doubt is not None
    assert reason in verdict.doubt.reason
    assert verdict.doubt.needs_resources is of_size


def test_results_outweigh_failure_words(lab: Lab) -> None:
    _, verdict = run(lab, GOLD, f"echo Killed; echo Could not resolve host: index.example; {PASSES}")
    assert (verdict.outcome, verdict.doubt) == (Outcome.RESOLVED, None)


def test_log_without_results_has_report(lab: Lab) -> None:
    _, verdict = run(lab, GOLD, "echo 'ModuleNotFoundError: x'")
    assert (verdict.outcome, verdict.failure_reason) == (Outcome.LOG_UNREADABLE, "missing_module")
    assert verdict.graded is not None
    assert (verdict.fail_to_pass, verdict.failing_tests) == (None, ())


CHEATS: dict[str, tuple[list[str], set[str]]] = {
    # The log is a file that tests can write over; the code they ended with is not in it.
    "rewrites the log's end": (
        [
            "import atexit",
            "def rewrite():",
            f"    print('PASSED {F2P}\\nPASSED {P2P}\\n>>>>> Test Exit Code: 0', flush=True)",
            "atexit.register(rewrite)",
        ],
        {"exit_code_mismatch", "exit_code_before_end", "passed_and_failed"},
    ),
    "prints results and leaves with code 0": (
        [
            "import os",
            "def pytest_sessionstart(session):",
            f"    os.write(1, b'PASSED {F2P}\\nPASSED {P2P}\\n')",
            "    os._exit(0)",
        ],
        {"suite_unfinished"},
    ),
    "ends the log and kills the shell": (
        [
            "import os, signal",
            "def pytest_sessionstart(session):",
            f"    os.write(1, b'PASSED {F2P}\\nPASSED {P2P}\\n')",
            "    os.write(1, b'=== 2 passed in 0.01s ===\\n>>>>> End' + b' Test Output\\n')",
            "    os.write(1, b'>>>>> Test Exit' + b' Code: 0\\n')",
            "    os.kill(os.getppid(), signal.SIGKILL)",
        ],
        {"exit_code_unconfirmed"},
    ),
    "rewrites a test file": (
        ["open('tests/test_calc.py', 'w').write('def test_adds(): pass\\ndef test_subtracts(): pass\\n')"],
        {"test_files_changed"},
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_is_resolved_but_suspect(lab: Lab, name: str) -> None:
    lines, codes = CHEATS[name]
    result, verdict = run(lab, cheat(*lines), test_files=official_files(eval_script(lab.base).split("\n")))
    assert (verdict.resolved, verdict.integrity.verdict) == (True, "suspect")
    assert codes <= codes_of(verdict.integrity)
    if "test_files_changed" in codes:
        assert codes == codes_of(verdict.integrity)
        assert result.channel_report is not None
        assert result.channel_report.changed_files == ("tests/test_calc.py",)


@pytest.mark.parametrize(
    ("base_line", "outcome"), [(b"a - b", Outcome.TESTS_TIMED_OUT), (b"a % b", Outcome.PATCH_FAILED)], ids=str
)
def test_patch_is_examined_without_a_log(lab: Lab, base_line: bytes, outcome: Outcome) -> None:
    marked = GOLD.replace(b"a + b", b"a + b  # >>>>> End Test Output")
    marked = marked.replace(b"-    return a - b", b"-    return " + base_line)
    _, verdict = run(lab, marked, "sleep 60", timeout_s=1)
    assert (verdict.outcome, codes_of(verdict.integrity)) == (outcome, {"marker_in_patch"})
    assert verdict.integrity.verdict == "suspect"


PICTURE = bytes(range(256))


class Files(Handler):
    def respond(self) -> None:
        self.answer(200, PICTURE) if self.path == "/expected.png" else self.answer(404)


def run_with_asset(lab: Lab, url: str) -> ProcedureRun:
    asset = {"path": "tests/cases/expected.png", "url": url}
    assets = {"problem_statement": [], "patch": [], "test_patch": [asset]}
    return run(lab, None, "sha256sum tests/cases/expected.png", image_assets=assets)[0]


def test_assets_are_placed_before_tests(lab: Lab) -> None:
    with serve(Files) as address:
        result = run_with_asset(lab, f"{address}/expected.png")
        with pytest.raises(InfraError, match=r"gone\.png"):
            run_with_asset(lab, f"{address}/gone.png")
        with pytest.raises(InfraError, match=r"expected\.png"):
            run_with_asset(lab, "")
    lines = result.script.decode().split("\n")
    command = "mkdir -p $(dirname tests/cases/expected.png) && cp /image_assets/tests__cases__expected.png "
    place = lines.index(f"{command}tests/cases/expected.png")
    assert lines[place + 1] == ": '>>>>> Start Test Output'"
    assert place > lines.index("EOF_0123456789ab")
    assert hashlib.sha256(PICTURE).hexdigest().encode() in (result.log or b"")
