from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.grading import official
from tests.steps.grading.logs import F2P, P2P, make_log, make_row, write

PREDICTION = {"instance_id": "acme__calc-1", "model_name_or_path": "m", "model_patch": "diff"}


def read_log(folder: Path, log: str, **changes: Any) -> official.Graded:
    spec = official.make_test_spec(make_row(**changes))
    return official.grade(spec, write(folder, "test_output.txt", log), PREDICTION)


def python(code: str, **env: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env or None)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_grader_imports_few_modules() -> None:
    """Each takes about a millisecond, at every one of hundreds of starts."""
    code = f"""
import sys, types
absent = ("docker", "datasets", "modal", "dotenv", "requests", "bs4", "rich")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent: raise ImportError(name)
sys.meta_path.insert(0, Absent())
mine = sys.modules["tqdm"] = types.ModuleType("tqdm")
from swe_argo.steps.grading import official
official.make_test_spec({make_row()!r})
official.load_harness()
print(sys.modules["tqdm"] is mine, [name for name in sys.modules if name.split(".")[0] in absent])
del sys.meta_path[0]
import swe_argo.steps.grade
print(len(sys.modules) < 500)
"""
    assert python(code) == "True []\nTrue\n"


def test_report_matches_the_harness_file(tmp_path: Path) -> None:
    status = {
        "FAIL_TO_PASS": ([F2P], []),
        "PASS_TO_PASS": ([], [P2P]),
        "FAIL_TO_FAIL": ([], []),
        "PASS_TO_FAIL": ([], []),
    }
    expected = {
        **{"patch_is_None": False, "patch_exists": True, "patch_successfully_applied": True, "resolved": False},
        "infra_failure": False,
        "tests_status": {name: {"success": passed, "failure": failed} for name, (passed, failed) in status.items()},
    }
    data = read_log(tmp_path, make_log(f"PASSED {F2P}", f"FAILED {P2P} - é")).data
    assert data == json.dumps({"acme__calc-1": expected}, indent=4).encode()


def test_reading_matches_the_harness(tmp_path: Path) -> None:
    graded = read_log(tmp_path, make_log(f"PASSED {F2P}", f"PASSED {P2P}"))
    spec, log = official.make_test_spec(make_row()), str(tmp_path / "test_output.txt")
    grading = official.import_harness("grading")
    assert graded.reading.statuses == grading.get_logs_eval(spec, log)[0]
    assert graded.report == grading.get_eval_report(spec, PREDICTION, log, True)
    assert not [name for name in grading.PARSER_REGISTRY if "remembered" in name]


def test_unknown_parser_or_type_raises(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="parse_log_nothing"):
        read_log(tmp_path, make_log(f"PASSED {F2P}"), log_parser="parse_log_nothing")
    with pytest.raises(ValueError, match="sometimes"):
        read_log(tmp_path, make_log(f"PASSED {F2P}"), eval_type="sometimes")


def test_parser_output_stays_off_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_log(tmp_path, make_log("+ mvn test -Dtest=CalcTest"), log_parser="parse_log_maven")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Maven log parser" in captured.err


def test_other_codec_is_refused() -> None:
    code = (
        "from swe_argo.steps.grading import official\n"
        "from swe_argo.steps.errors import ConfigError\n"
        "try: official._require_utf8()\nexcept ConfigError as error: print(error)\nelse: print('fine')\n"
    )
    assert python(code, PYTHONUTF8="1", PATH="/usr/bin:/bin") == "fine\n"
    other = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    assert "set PYTHONUTF8=1" in python(code, **other)
