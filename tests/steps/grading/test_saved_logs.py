from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.datasets.classic_rows import grading_row
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.rows import normalise
from swe_argo.steps.grading.saved_logs import read_corpus, read_log
from tests.steps.grading.logs import F2P, P2P, codes_of, make_log, make_row, write

GOOD = make_log(f"PASSED {F2P}", f"PASSED {P2P}", code=0)
Rows = Callable[[str], dict[str, dict[str, Any]]]


def test_saved_log_allows_invalid_bytes(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(GOOD.replace("+ cd", "\udcff cd").encode(errors="surrogateescape"))
    grade = read_log(make_row(), log).examine()
    assert (grade.graded.inner["resolved"], grade.integrity.findings) == (True, [])


def test_carriage_return_hides_no_result(tmp_path: Path) -> None:
    log = write(tmp_path, "log.txt", make_log(f"FAILED {F2P}", f"10%\rPASSED {F2P}", f"PASSED {P2P}"))
    grade = read_log(make_row(), log).examine()
    assert grade.graded.inner["resolved"]
    assert "passed_and_failed" in codes_of(grade.integrity)


def test_logs_without_rows_are_listed(tmp_path: Path) -> None:
    write(tmp_path, "a__a-1/test_output.txt", GOOD)
    write(tmp_path, "b__b-2/test_output.txt", GOOD)
    with pytest.raises(ConfigError, match="a__a-1, b__b-2"):
        list(read_corpus({}, tmp_path))
    with pytest.raises(ConfigError, match="no <id>/test_output"):
        list(read_corpus({}, tmp_path / "a__a-1" / "none"))


def test_unusable_log_or_row_is_named(tmp_path: Path) -> None:
    row, log = make_row(), write(tmp_path, "log.txt", GOOD)
    with pytest.raises(ConfigError, match=r"--log: .*gone.txt: No such file"):
        read_log(row, tmp_path / "gone.txt")
    with pytest.raises(ConfigError, match="parse_log_nothing"):
        read_log(row | {"log_parser": "parse_log_nothing"}, log)
    del row["log_parser"]
    with pytest.raises(ConfigError, match="acme__calc-1 has no column log_parser"):
        read_log(row, log)


def test_real_logs_get_official_verdict(real_logs: Path, real_rows: Rows) -> None:
    rows = {"verified": real_rows("verified_test"), "lite": {**real_rows("lite_test"), **real_rows("lite_dev")}}
    logs = sorted(real_logs.glob("*/*/test_output.txt"))
    assert len(logs) == 121
    alarms = {}
    for log in logs:
        name = log.parent.name
        grade = read_log(rows[log.parent.parent.name][name], log, log.with_name("patch.diff")).examine()
        expected = {name: json.loads((log.parent / "expected_5.0.2.json").read_text())}
        assert grade.graded.data == json.dumps(expected, indent=4).encode(), name
        if grade.integrity.findings:
            alarms[name] = codes_of(grade.integrity)
    assert alarms == {}


def test_classic_rows_grade_real_logs(real_logs: Path, real_rows: Rows) -> None:
    rows = {name: grading_row(normalise(row, name)) for name, row in real_rows("verified_test_classic").items()}
    differing = []
    for log, read in read_corpus(rows, real_logs / "verified"):
        if read.graded.inner != json.loads(log.with_name("expected_5.0.2.json").read_text()):
            differing.append(log.parent.name)
    assert set(differing) <= {"django__django-10097", "astropy__astropy-7606"}
