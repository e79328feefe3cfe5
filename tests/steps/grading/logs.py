"""Rows and logs made for tests: the shape of real ones, small enough to read."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.verdict import Evidence, Integrity
from swe_argo.steps.grading import official
from swe_argo.steps.grading.exit_code_channel import ChannelReport
from swe_argo.steps.grading.integrity import examine
from swe_argo.steps.grading.official import Graded
from swe_argo.steps.grading.saved_logs import grade_text, normalise_line_ends

SCRIPT = """#!/bin/bash
set -uxo pipefail
cd /testbed
git status
git -c core.fileMode=false diff 0000000
git checkout 0000000 tests/test_calc.py
git apply -v - <<'EOF_0123456789ab'
diff --git a/tests/test_calc.py b/tests/test_calc.py
EOF_0123456789ab
: '>>>>> Start Test Output'
pytest -rA tests/test_calc.py
: '>>>>> End Test Output'
git checkout 0000000 tests/test_calc.py
"""
F2P = "tests/test_calc.py::test_adds"
P2P = "tests/test_calc.py::test_subtracts"


def make_row(**changes: Any) -> dict[str, Any]:
    """Return a row as swebench 5 publishes them, lists as JSON strings."""
    return {
        **{"instance_id": "acme__calc-1", "repo": "acme/calc", "version": "1.0"},
        "image": "swebench/sweb.eval.x86_64.acme_1776_calc-1:latest",
        **{"FAIL_TO_PASS": json.dumps([F2P]), "PASS_TO_PASS": json.dumps([P2P])},
        **{"log_parser": "parse_log_pytest", "eval_type": "pass_and_fail", "eval_script": SCRIPT},
        **changes,
    }


def make_log(
    *results: str,
    closing: str | None = "",
    code: int | None = None,
    before: str = "",
    after: str = "",
    end: bool = True,
) -> str:
    """Return a log: ``results`` between its markers, the runner's closing line (the right one by default), a code."""
    lines = ["+ cd /testbed", *([before] if before else []), "+ : '>>>>> Start Test Output'"]
    lines += ["+ pytest -rA tests/test_calc.py", *results]
    if closing == "":
        failed = sum(line.startswith(("FAILED", "ERROR")) for line in results)
        passed = sum(line.startswith("PASSED") for line in results)
        closing = f"==== {failed} failed, {passed} passed in 0.01s ===="
    lines += [closing] if closing else []
    if end:
        lines += ["+ SWEBENCH_TEST_EXIT_CODE=0"] if code is not None else []
        lines += ["+ : '>>>>> End Test Output'"]
    if code is not None and end:
        lines += [f"+ echo '>>>>> Test Exit Code: {code}'", f">>>>> Test Exit Code: {code}"]
    lines += [after] if after else []
    return "\n".join([*lines, "+ git checkout 0000000 tests/test_calc.py", "Updated 1 path from 0000000", ""])


def judge(
    log: str, patch: bytes = b"", *, channel_report: ChannelReport | None = None, **changes: Any
) -> tuple[Graded, Evidence, Integrity]:
    """Return the official reading and our examination of one log."""
    spec = official.make_test_spec(make_row(**changes))
    graded = grade_text(spec, log, {"instance_id": spec.instance_id, "model_patch": "x"})
    return graded, *examine(normalise_line_ends(log), patch, spec, graded, channel_report=channel_report)


def codes_of(integrity: Integrity) -> set[str]:
    """Return the codes of all findings."""
    return {finding.code for finding in integrity.findings}


def make_patch(path: str, *added: str, removed: tuple[str, ...] = ()) -> bytes:
    """Return a git diff of one hunk."""
    head = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
    hunk = [f"@@ -1,{1 + len(removed)} +1,{1 + len(added)} @@", " kept"]
    hunk += [f"-{line}" for line in removed] + [f"+{line}" for line in added]
    return (head + "\n".join(hunk) + "\n").encode()


def new_file(path: str, text: str) -> bytes:
    """Return a git diff that makes one file."""
    lines = textwrap.dedent(text).strip("\n").split("\n")
    body = "".join(f"+{line}\n" for line in lines)
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n{body}".encode()


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file of exactly this text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path
