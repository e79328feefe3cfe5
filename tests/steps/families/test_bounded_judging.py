"""What a family's rule says of logs that are made to be large."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.steps.families import rows
from swe_argo.steps.families.bounded_judging import MOST, judge_bounded
from swe_argo.steps.grading import bounded
from swe_argo.steps.grading.instance_log import InstanceLogWriter
from swe_argo.steps.grading.procedure import ProcedureRun
from tests.steps.families.rebench.make_rows import v1_row, v2_row, with_config
from tests.steps.families.swegym.make_rows import make_row as swegym_row
from tests.steps.families.swesmith.make_rows import make_row as swesmith_row

SOURCE = {
    "repo_name": "pyramid",
    "commit_hash": "c" * 40,
    "docker_image": "i:t",
    "expected_output_json": {"test_answer": "PASSED", "test_old": "FAILED"},
}
SUMMARY = "= short test summary info =\nPASSED t.py::test_answer\nFAILED t.py::test_old - assert 0\n"


def test_long_log_has_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"noise of the tests\n" * (bounded.SMALL_BYTES // 18) + SUMMARY.encode()
    expected = judge_bounded("r2e", SOURCE, log)
    monkeypatch.setattr("swe_argo.steps.families.bounded_judging.HERE_BYTES", 1 << 40)
    assert judge_bounded("r2e", SOURCE, log) == expected
    assert expected.reward == 1.0


TEXT_MODE_FAMILIES = {
    "swegym": swegym_row(),
    "swesmith": swesmith_row(),
    "rebench v1": v1_row(),
    "rebench v2": v2_row(),
}


@pytest.mark.parametrize("end", ["\r", "\r\n", "\r\r\n"])
@pytest.mark.parametrize("name", TEXT_MODE_FAMILIES)
def test_carriage_returns_end_lines(name: str, end: str) -> None:
    family, source = name.split(maxsplit=1)[0], TEXT_MODE_FAMILIES[name]
    tests = [*source["FAIL_TO_PASS"], *source["PASS_TO_PASS"]]
    statuses = [f"{test} PASSED [ 1%]" if name == "swesmith" else f"PASSED {test}" for test in tests]
    applied = ["Applied patch tests/test_a.py cleanly.", "Applied patch tests/new.json cleanly."]
    log = "\n".join(
        [
            *applied,
            "+ : '>>>>> Start Test Output'",
            f"10 %{end}{end.join(statuses)}{end}100 %",
            "+ : '>>>>> End Test Output'",
        ]
    )
    verdict = judge_bounded(family, source, log.encode())
    assert (verdict.resolved, verdict.unreadable) == (True, "")
    assert verdict == judge_bounded(family, source, log.replace(end, "\n").encode())


def test_r2e_removes_carriage_returns() -> None:
    log = SUMMARY.replace("\nPASSED", "\n10 %\r100 %\r\nPASSED").replace("test_answer", "test\r_answer")
    assert judge_bounded("r2e", SOURCE, log.encode()).resolved
    assert not judge_bounded("r2e", SOURCE, SUMMARY.replace("\nFAILED", "\rFAILED").encode()).resolved


def test_invented_tests_are_bounded() -> None:
    log = SUMMARY.encode() + b"".join(b"FAILED t.py::invented_%d\n" % number for number in range(300_000))
    verdict = judge_bounded("r2e", SOURCE, log)
    assert (verdict.resolved, verdict.reports_failure) == (False, True)
    assert max(len(verdict.statuses), len(verdict.differences)) <= MOST
    assert {"test_answer", "test_old"} <= verdict.statuses.keys()


def test_oversized_judging_raises() -> None:
    log = SUMMARY.encode() + b"".join(b"PASSED ::%032x\n" % number for number in range(1_500_000))
    with pytest.raises(MemoryError, match="384 MiB"):
        judge_bounded("r2e", SOURCE, log)


def test_slow_parsing_is_log_unreadable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounded, "TIMEOUT_S", 5.0)
    row = with_config(v2_row(), log_parser="parse_log_pytest_nebo")
    normalised = rows.normalise(row, "r")
    grader = rows.family_of(normalised).make_grader(
        rows.to_instance(normalised, hints=False), rows.to_answer(normalised)
    )
    run = ProcedureRun(InstanceLogWriter(), log_path=str(tmp_path / "log"))
    run.log = b"PASSED " + b" " * 200_000 + b"x\n"
    verdict = grader.judge(run, b"")
    assert verdict.outcome is Outcome.LOG_UNREADABLE
    assert verdict.failure_reason == f"{len(run.log)} bytes of test output are not graded within 5 s"
