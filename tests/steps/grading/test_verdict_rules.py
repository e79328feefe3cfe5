"""The rules by which swebench 5.0.2 reads a log, as we apply them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.steps.grading.logs import F2P, P2P, grade, make_log

OTHER = "tests/other.py::test_x"
CUT = {"FAIL_TO_PASS": ["t.py::test_x[a"], "PASS_TO_PASS": []}
FAIL_ONLY = {"eval_type": "fail_only"}
PASSES = (f"PASSED {F2P}", f"PASSED {P2P}")
GOOD = make_log(*PASSES, code=0)
ECHOED = f">>>>> Start Test Output\nPASSED {F2P}\nPASSED {P2P}\n>>>>> End Test Output\n>>>>> Test Exit Code: 0\n"
STOP_WORDS = ("Patch Apply Failed", "Reset Failed", "Tests Errored", "Tests Timed Out")

RULES: dict[str, tuple[str, dict[str, Any], bool | None]] = {
    "clean log": (GOOD, {}, True),
    **{f"stop word {word}": (f"{GOOD}>>>>> {word}", {}, None) for word in STOP_WORDS},
    "no start marker": (GOOD.replace(">>>>> Start Test Output", "gone"), {}, None),
    "no end marker": (GOOD.replace(">>>>> End Test Output", "gone"), {}, None),
    "results before the markers": (make_log(closing=None, before="\n".join(PASSES)), {}, True),
    "markers are echoed": (ECHOED, {}, True),
    "no results": (make_log("nothing", closing=None), {}, None),
    "exit code 1 without a failure": (make_log(*PASSES, code=1), {}, None),
    "exit code -11 without a failure": (make_log(*PASSES, code=-11), {}, None),
    "no exit code": (make_log(*PASSES), {}, True),
    "exit code 1 by another test": (make_log(*PASSES, f"FAILED {OTHER}", code=1), {}, True),
    "expected failures": (make_log(f"XFAIL {F2P}", f"XFAIL {P2P}"), {}, True),
    "FAIL_TO_PASS skipped": (make_log(f"SKIPPED {F2P}", f"PASSED {P2P}"), {}, False),
    "PASS_TO_PASS skipped": (make_log(f"PASSED {F2P}", f"SKIPPED {P2P}"), {}, True),
    "FAIL_TO_PASS error": (make_log(f"ERROR {F2P}", f"PASSED {P2P}"), {}, False),
    "PASS_TO_PASS error": (make_log(f"PASSED {F2P}", f"ERROR {P2P}"), {}, False),
    "tests are absent": (make_log(f"PASSED {OTHER}"), {}, False),
    "fail_only, tests are absent": (make_log(f"PASSED {OTHER}"), FAIL_ONLY, True),
    "fail_only, error": (make_log(f"ERROR {F2P}"), FAIL_ONLY, True),
    "fail_only, failure": (make_log(f"FAILED {F2P}"), FAIL_ONLY, False),
    "empty lists": (make_log(f"PASSED {OTHER}"), {"FAIL_TO_PASS": [], "PASS_TO_PASS": "[]"}, True),
    "cut id, all pass": (make_log("PASSED t.py::test_x[a-1]", "PASSED t.py::test_x[a-2]"), CUT, True),
    "cut id, one is expected": (make_log("PASSED t.py::test_x[a-1]", "XFAIL t.py::test_x[a-2]"), CUT, True),
    "cut id, one fails": (make_log("PASSED t.py::test_x[a-1]", "FAILED t.py::test_x[a-2]"), CUT, False),
    "cut id stands itself": (make_log("PASSED t.py::test_x[a", "FAILED t.py::test_x[a-2]"), CUT, True),
    "a carriage return ends a line": (make_log(f"progress 10%\rPASSED {F2P}\r\nPASSED {P2P}"), {}, True),
    "invalid bytes": (make_log(b"\xff\xfe noise".decode(errors="replace"), *PASSES), {}, True),
}


@pytest.mark.parametrize("name", RULES)
def test_log_is_graded_by_the_rule(name: str) -> None:
    log, changes, resolved = RULES[name]
    inner = grade(log, **changes)
    assert (inner["patch_successfully_applied"], "tests_status" in inner) == (resolved is not None,) * 2
    assert inner["resolved"] is bool(resolved)
    if name == "tests are absent":
        failures = [inner["tests_status"][which]["failure"] for which in ("FAIL_TO_PASS", "PASS_TO_PASS")]
        assert failures == [[F2P], [P2P]]


def test_missing_patch_is_not_graded() -> None:
    rest = dict.fromkeys(("patch_exists", "patch_successfully_applied", "resolved", "infra_failure"), False)
    assert grade(GOOD, patch=None) == {"patch_is_None": True, **rest}
    assert grade(GOOD, patch="")["resolved"]
    assert grade(GOOD, patch="\n")["resolved"]


@pytest.mark.parametrize(
    ("line", "reason", "environment"),
    [
        ("Failed to launch the browser", "browser_launch_failed", True),
        ("Failed to connect to the bus", "browser_launch_failed", True),
        ("cannot open display", "display_unavailable", True),
        ("Missing X server", "display_unavailable", True),
        ("fork: Cannot allocate memory", "out_of_memory", True),
        ("java.lang.OutOfMemoryError", "out_of_memory", True),
        ("Killed", "out_of_memory", True),
        ("Cannot find module 'x'\nCannot allocate memory", "out_of_memory", True),
        ("worker Killed by signal", None, False),
        ("Error response from daemon", "container_unavailable", True),
        ("Could not resolve host: index.example", "network_unreachable", True),
        ("Cannot find module 'x'", "missing_module", False),
        ("ModuleNotFoundError: x", "missing_module", False),
        ("collected 0 items", "no_tests_collected", False),
        ("Timeout error: 1800 seconds exceeded.", "tests_timed_out", False),
    ],
)
def test_environment_signatures(line: str, reason: str | None, environment: bool) -> None:
    inner = grade(make_log(line, closing=None))
    assert (inner["infra_failure"], inner.get("infra_failure_reason")) == (environment, reason)
    assert not grade(make_log(line, f"PASSED {F2P}"))["infra_failure"]
