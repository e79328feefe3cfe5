from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.datasets.classic_rows import grading_row
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import normalise
from swe_argo.steps.grading.saved_logs import grade_log, grade_saved, read_corpus
from tests.steps.grading.logs import F2P, P2P, make_log, make_row, write

GOOD = make_log(f"PASSED {F2P}", f"PASSED {P2P}", code=0)


def test_saved_log_has_official_report(tmp_path: Path) -> None:
    log, patch = write(tmp_path, "log.txt", GOOD), write(tmp_path, "p.diff", "diff")
    report = json.loads(grade_log(make_row(), log, patch))
    assert report["acme__calc-1"]["resolved"] is True
    assert grade_log(make_row(), log) == grade_log(make_row(), log, patch)


def test_saved_log_allows_invalid_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(GOOD.replace("+ cd", "\udcff cd").encode(errors="surrogateescape"))
    grade = grade_saved(make_row(), log)
    assert grade.graded.inner["resolved"]
    assert grade.integrity.findings == []


def test_carriage_return_hides_no_result(tmp_path: Path) -> None:
    log = write(tmp_path, "log.txt", make_log(f"FAILED {F2P}", f"10%\rPASSED {F2P}", f"PASSED {P2P}"))
    grade = grade_saved(make_row(), log)
    assert grade.graded.inner["resolved"]
    assert "passed_and_failed" in [finding.code for finding in grade.integrity.findings]


def test_corpus_is_graded_by_folder(tmp_path: Path) -> None:
    rows = {name: make_row(instance_id=name) for name in ("a__a-1", "b__b-2")}
    write(tmp_path, "a__a-1/test_output.txt", GOOD)
    write(tmp_path, "lite/b__b-2/test_output.txt", make_log(f"FAILED {F2P}", f"PASSED {P2P}"))
    write(tmp_path, "lite/b__b-2/patch.diff", "diff")
    grades = {log.relative_to(tmp_path).as_posix(): grade.graded for log, grade in read_corpus(rows, tmp_path)}
    assert {path: graded.inner["resolved"] for path, graded in grades.items()} == {
        "a__a-1/test_output.txt": True,
        "lite/b__b-2/test_output.txt": False,
    }
    assert list(grades["lite/b__b-2/test_output.txt"].report) == ["b__b-2"]


def test_logs_without_rows_are_listed(tmp_path: Path) -> None:
    write(tmp_path, "a__a-1/test_output.txt", GOOD)
    write(tmp_path, "b__b-2/test_output.txt", GOOD)
    with pytest.raises(ConfigError, match="a__a-1, b__b-2"):
        list(read_corpus({}, tmp_path))
    with pytest.raises(ConfigError, match="no <id>/test_output"):
        list(read_corpus({}, tmp_path / "a__a-1" / "none"))


def test_missing_file_or_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--log: .*gone.txt: No such file"):
        grade_log(make_row(), tmp_path / "gone.txt")
    row = make_row()
    del row["log_parser"]
    with pytest.raises(ConfigError, match="acme__calc-1 has no column log_parser"):
        grade_log(row, write(tmp_path, "log.txt", GOOD))


def test_unknown_parser_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="parse_log_nothing"):
        grade_log(make_row(log_parser="parse_log_nothing"), write(tmp_path, "log.txt", GOOD))


def test_classic_row_grades_a_saved_log(tmp_path: Path) -> None:
    row = make_row(repo="pallets/flask", instance_id="pallets__flask-1", problem_statement="x", base_commit="0" * 40)
    row |= {"patch": "", "test_patch": "", "hints_text": "", "created_at": ""}
    for column in ("image", "log_parser", "eval_type", "eval_script"):
        del row[column]
    report = json.loads(grade_log(grading_row(normalise(row, "row 1")), write(tmp_path, "log.txt", GOOD)))
    assert report["pallets__flask-1"]["resolved"] is True


def test_classic_rows_grade_real_logs(real_logs: Path, real_rows: Callable[[str], dict[str, dict[str, Any]]]) -> None:
    rows = {name: grading_row(normalise(row, name)) for name, row in real_rows("verified_test_classic").items()}
    differing = []
    for log, read in read_corpus(rows, real_logs / "verified"):
        if read.graded.inner != json.loads(log.with_name("expected_5.0.2.json").read_text()):
            differing.append(log.parent.name)
    assert set(differing) <= {"django__django-10097", "astropy__astropy-7606"}
