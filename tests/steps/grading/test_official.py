from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.grading import official, swebench_harness
from tests.steps.grading.logs import F2P, P2P, make_log, make_row, write

PREDICTION = {"instance_id": "acme__calc-1", "model_name_or_path": "m", "model_patch": "diff"}


def report_bytes(row: dict[str, Any], log: Path, prediction: dict[str, Any]) -> bytes:
    return official.grade(official.make_test_spec(row), log, prediction).data


def python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_grader_needs_no_extra_packages() -> None:
    output = python(
        "import sys\n"
        "absent = ('docker', 'datasets', 'modal', 'dotenv', 'tqdm', 'requests', 'bs4', 'rich')\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in absent: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from swe_argo.steps.grading import official\n"
        f"spec = official.make_test_spec({make_row()!r})\n"
        "from pathlib import Path\n"
        "official.harness_constants(), official.classify('x')\n"
        "print([name for name in sys.modules if name.split('.')[0] in absent])\n"
    )
    assert output == "[]\n"


def test_grade_step_imports_few_modules() -> None:
    """Each takes about a millisecond, at every one of hundreds of starts."""
    output = python(
        "import swe_argo.steps.grade\n"
        "from swe_argo.steps.grading import official\n"
        f"official.make_test_spec({make_row()!r}); official.exit_code_pattern()\n"
        "import sys; print(len(sys.modules))\n"
    )
    assert int(output) < 500


def test_import_keeps_existing_modules() -> None:
    output = python(
        "import sys, types\n"
        "mine = sys.modules['tqdm'] = types.ModuleType('tqdm')\n"
        "from swe_argo.steps.grading import official\n"
        f"official.make_test_spec({make_row()!r})\n"
        "print(sys.modules['tqdm'] is mine, 'datasets' in sys.modules)\n"
    )
    assert output == "True False\n"


def test_spec_uses_library_function() -> None:
    function = official._make_test_spec()
    assert function.__code__.co_filename.endswith("swebench/harness/utils.py")


def test_exit_code_is_captured_once() -> None:
    lines = official.make_test_spec(make_row()).eval_script.split("\n")
    end = lines.index(": '>>>>> End Test Output'")
    assert lines[end - 1] == "SWEBENCH_TEST_EXIT_CODE=$?"
    assert lines[end + 1] == 'echo ">>>>> Test Exit Code: $SWEBENCH_TEST_EXIT_CODE"'
    assert sum("SWEBENCH_TEST_EXIT_CODE=$?" in line for line in lines) == 1
    assert lines[:2] == ["#!/bin/bash", "set -uxo pipefail"]
    assert lines[-1] == ""


def test_script_without_end_is_unchanged() -> None:
    script = "#!/bin/bash\nset -uxo pipefail\npytest\n"
    assert official.make_test_spec(make_row(eval_script=script)).eval_script == script


def test_test_lists_may_be_lists_or_json() -> None:
    as_lists = official.make_test_spec(make_row(FAIL_TO_PASS=[F2P], PASS_TO_PASS=[P2P]))
    assert as_lists == official.make_test_spec(make_row())


@pytest.mark.parametrize("column", ["image", "eval_script", "log_parser", "eval_type"])
def test_missing_column_is_named(column: str) -> None:
    row = make_row()
    del row[column]
    with pytest.raises(KeyError, match=column):
        official.make_test_spec(row)


def test_report_matches_the_harness_file(tmp_path: Path) -> None:
    log = write(tmp_path, "test_output.txt", make_log(f"PASSED {F2P}", f"FAILED {P2P} - é"))
    expected = {
        "acme__calc-1": {
            "patch_is_None": False,
            "patch_exists": True,
            "patch_successfully_applied": True,
            "resolved": False,
            "infra_failure": False,
            "tests_status": {
                "FAIL_TO_PASS": {"success": [F2P], "failure": []},
                "PASS_TO_PASS": {"success": [], "failure": [P2P]},
                "FAIL_TO_FAIL": {"success": [], "failure": []},
                "PASS_TO_FAIL": {"success": [], "failure": []},
            },
        }
    }
    assert report_bytes(make_row(), log, PREDICTION) == json.dumps(expected, indent=4).encode()


def test_reading_matches_the_harness(tmp_path: Path) -> None:
    log = write(tmp_path, "test_output.txt", make_log(f"PASSED {F2P}", f"PASSED {P2P}"))
    spec = official.make_test_spec(make_row())
    graded = official.grade(spec, log, PREDICTION)
    grading = swebench_harness.import_harness("grading")
    assert graded.reading.statuses == grading.get_logs_eval(spec, str(log))[0]
    assert graded.report == grading.get_eval_report(spec, PREDICTION, str(log), True)
    assert not [name for name in grading.PARSER_REGISTRY if "remembered" in name]


def test_unknown_parser_or_type_raises(tmp_path: Path) -> None:
    log = write(tmp_path, "test_output.txt", make_log(f"PASSED {F2P}"))
    with pytest.raises(KeyError, match="parse_log_nothing"):
        report_bytes(make_row(log_parser="parse_log_nothing"), log, PREDICTION)
    with pytest.raises(ValueError, match="sometimes"):
        report_bytes(make_row(eval_type="sometimes"), log, PREDICTION)


def test_parser_output_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path, "test_output.txt", make_log("+ mvn test -Dtest=CalcTest"))
    report_bytes(make_row(log_parser="parse_log_maven"), log, PREDICTION)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Maven log parser" in captured.err


def test_other_codec_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = (
        "from swe_argo.steps.grading import official\n"
        "from swe_argo.steps.errors import ConfigError\n"
        "try: official._require_utf8()\n"
        "except ConfigError as error: print(error)\n"
        "else: print('fine')\n"
    )
    env = {"PYTHONUTF8": "1", "PATH": "/usr/bin:/bin"}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert result.stdout == "fine\n"
    env = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "set PYTHONUTF8=1" in result.stdout


def test_real_logs_get_official_verdict(real_logs: Path, real_rows: Callable[[str], dict[str, dict[str, Any]]]) -> None:
    rows = {"verified": real_rows("verified_test"), "lite": {**real_rows("lite_test"), **real_rows("lite_dev")}}
    logs = sorted(real_logs.glob("*/*/test_output.txt"))
    assert len(logs) == 121
    for log in logs:
        name = log.parent.name
        row = rows[log.parent.parent.name][name]
        report = report_bytes(row, log, {"instance_id": name, "model_patch": "x"})
        expected = {name: json.loads((log.parent / "expected_5.0.2.json").read_text())}
        assert report == json.dumps(expected, indent=4).encode(), name


def test_real_scripts_capture_code_once(real_rows: Callable[[str], dict[str, dict[str, Any]]]) -> None:
    for file in ("verified_test", "lite_test", "multilingual_test", "multimodal_dev"):
        for name, row in real_rows(file).items():
            script = official.make_test_spec(row).eval_script
            assert script.count("SWEBENCH_TEST_EXIT_CODE=$?\n") == 1, name
            assert script.count('echo ">>>>> Test Exit Code: ') == 1, name
