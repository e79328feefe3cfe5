"""Every rule by which swebench 5.0.2 reads a log, seen through our door to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.steps.grading.logs import F2P, P2P, grade, make_log

GOOD = make_log(f"PASSED {F2P}", f"PASSED {P2P}", code=0)


def status(inner: dict[str, Any], which: str, end: str) -> list[str]:
    tests: list[str] = inner["tests_status"][which][end]
    return tests


def test_clean_log_is_resolved() -> None:
    inner = grade(GOOD)
    assert inner["resolved"]
    assert inner["patch_successfully_applied"]


@pytest.mark.parametrize(
    "word", [">>>>> Patch Apply Failed", ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out"]
)
def test_stop_word_makes_log_ungradeable(word: str) -> None:
    inner = grade(GOOD + word)
    assert not inner["resolved"]
    assert not inner["patch_successfully_applied"]
    assert "tests_status" not in inner


@pytest.mark.parametrize("marker", [">>>>> Start Test Output", ">>>>> End Test Output"])
def test_missing_marker_is_ungradeable(marker: str) -> None:
    assert "tests_status" not in grade(GOOD.replace(marker, "gone"))


def test_results_may_lie_outside_markers() -> None:
    log = make_log(closing=None, before=f"PASSED {F2P}\nPASSED {P2P}")
    assert grade(log)["resolved"]


def test_empty_log_is_ungradeable() -> None:
    assert not grade(make_log("nothing", closing=None))["patch_successfully_applied"]


@pytest.mark.parametrize(("code", "gradeable"), [(0, True), (1, False), (-11, False), (None, True)])
def test_exit_code_must_fit_the_results(code: int | None, gradeable: bool) -> None:
    log = make_log(f"PASSED {F2P}", f"PASSED {P2P}", code=code)
    assert grade(log)["patch_successfully_applied"] is gradeable


def test_failed_test_explains_exit_code() -> None:
    log = make_log(f"PASSED {F2P}", f"PASSED {P2P}", "FAILED tests/other.py::test_x", code=1)
    assert grade(log)["resolved"]


@pytest.mark.parametrize(
    ("f2p", "p2p", "resolved"),
    [
        ("PASSED", "PASSED", True),
        ("XFAIL", "XFAIL", True),
        ("SKIPPED", "PASSED", False),
        ("PASSED", "SKIPPED", True),
        ("ERROR", "PASSED", False),
        ("PASSED", "ERROR", False),
    ],
)
def test_statuses_follow_the_rule(f2p: str, p2p: str, resolved: bool) -> None:
    assert grade(make_log(f"{f2p} {F2P}", f"{p2p} {P2P}"))["resolved"] is resolved


def test_absent_test_counts_as_failed() -> None:
    log = make_log("PASSED tests/other.py::test_x")
    inner = grade(log)
    assert status(inner, "FAIL_TO_PASS", "failure") == [F2P]
    assert status(inner, "PASS_TO_PASS", "failure") == [P2P]
    assert grade(log, eval_type="fail_only")["resolved"]


def test_fail_only_ignores_errors() -> None:
    assert grade(make_log(f"ERROR {F2P}"), eval_type="fail_only")["resolved"]
    assert not grade(make_log(f"FAILED {F2P}"), eval_type="fail_only")["resolved"]


@pytest.mark.parametrize(
    ("results", "passes"),
    [
        (["PASSED t.py::test_x[a-1]", "PASSED t.py::test_x[a-2]"], True),
        (["PASSED t.py::test_x[a-1]", "XFAIL t.py::test_x[a-2]"], True),
        (["PASSED t.py::test_x[a-1]", "FAILED t.py::test_x[a-2]"], False),
        (["PASSED t.py::test_x[a", "FAILED t.py::test_x[a-2]"], True),
    ],
    ids=["agree", "agree on passing", "disagree", "exact"],
)
def test_cut_id_needs_agreeing_results(results: list[str], passes: bool) -> None:
    inner = grade(make_log(*results), FAIL_TO_PASS=["t.py::test_x[a"], PASS_TO_PASS=[])
    assert inner["resolved"] is passes


def test_empty_lists_count_as_passed() -> None:
    assert grade(make_log("PASSED tests/other.py::test_x"), FAIL_TO_PASS=[], PASS_TO_PASS="[]")["resolved"]


def test_missing_patch_is_not_graded() -> None:
    assert grade(GOOD, patch=None) == {
        "patch_is_None": True,
        "patch_exists": False,
        "patch_successfully_applied": False,
        "resolved": False,
        "infra_failure": False,
    }
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
        ("Error response from daemon", "container_unavailable", True),
        ("Could not resolve host: index.example", "network_unreachable", True),
        ("Cannot find module 'x'", "missing_module", False),
        ("ModuleNotFoundError: x", "missing_module", False),
        ("collected 0 items", "no_tests_collected", False),
        ("Timeout error: 1800 seconds exceeded.", "tests_timed_out", False),
    ],
)
def test_environment_signatures(line: str, reason: str, environment: bool) -> None:
    inner = grade(make_log(line, closing=None))
    assert inner["infra_failure"] is environment
    assert inner["infra_failure_reason"] == reason


def test_first_signature_wins() -> None:
    both = make_log("Cannot find module 'x'", "Cannot allocate memory", closing=None)
    assert grade(both)["infra_failure_reason"] == "out_of_memory"
    assert "infra_failure_reason" not in grade(make_log("worker Killed by signal", closing=None))


def test_graded_log_is_no_infra_failure() -> None:
    assert not grade(make_log("Cannot allocate memory", f"PASSED {F2P}"))["infra_failure"]


def test_markers_may_be_echoed() -> None:
    log = f">>>>> Start Test Output\nPASSED {F2P}\nPASSED {P2P}\n>>>>> End Test Output\n>>>>> Test Exit Code: 0\n"
    assert grade(log)["resolved"]


def test_carriage_return_ends_a_line() -> None:
    log = make_log(f"progress 10%\rPASSED {F2P}\r\nPASSED {P2P}")
    assert grade(log)["resolved"]


def test_grading_survives_invalid_bytes() -> None:
    log = make_log(b"\xff\xfe noise".decode(errors="replace"), f"PASSED {F2P}", f"PASSED {P2P}")
    assert grade(log)["resolved"]


SAMPLES = {
    "parse_log_django": (
        ["test_adds (calc.tests.CalcTests) ... ok", "test_x (calc.tests.CalcTests) ... FAIL"],
        "Ran 2 tests in 0.01s\n\nFAILED (failures=1)",
        ("test_adds (calc.tests.CalcTests)", "test_x (calc.tests.CalcTests)"),
    ),
    "parse_log_sympy": (
        ["calc/tests/test_calc.py[2]", "test_adds ok", "test_x F"],
        "==== tests finished: 1 passed, 1 failed, in 0.01 seconds ====",
        ("test_adds", "test_x"),
    ),
    "parse_log_pytest_v2": (
        ["\x1b[32mPASSED\x1b[0m tests/test_calc.py::test_adds[a b]", "FAILED tests/test_calc.py::test_x - boom - bang"],
        "==== 1 failed, 1 passed in 0.01s ====",
        ("tests/test_calc.py::test_adds[a b]", "tests/test_calc.py::test_x"),
    ),
    "parse_log_gotest": (
        ["--- PASS: TestAdds (0.00s)", "--- FAIL: TestX (0.00s)"],
        "FAIL\tacme/calc 0.01s",
        ("TestAdds", "TestX"),
    ),
}


@pytest.mark.parametrize("parser", SAMPLES)
def test_log_of_each_runner_is_read(parser: str) -> None:
    results, closing, (passed, failed) = SAMPLES[parser]
    inner = grade(
        make_log(*results, closing=closing),
        log_parser=parser,
        FAIL_TO_PASS=json.dumps([passed]),
        PASS_TO_PASS=json.dumps([failed]),
    )
    assert status(inner, "FAIL_TO_PASS", "success") == [passed]
    assert status(inner, "PASS_TO_PASS", "failure") == [failed]
