"""A SWE-smith row through the whole chain: the bug, its reverse, and what an agent sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.steps.families.chain import read_record, run_chain
from tests.steps.families.swesmith.lab import make_lab

AGENT = """
from swe_argo.steps.contracts.trajectory import StopReason


class Looker:
    def act(self, task):
        seen = task.box.exec("ls -R; cat __pycache__/*; git log --all -p", timeout_s=60).stdout.decode()
        task.recorder.add_message("user", seen)
        task.box.exec("sed -i s/41/42/ calc.py; mkdir -p tests; echo 'def test_answer(): 0/0' >tests/test_mine.py",
                      timeout_s=60)
        return StopReason.FINISHED
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swesmith")
    make_lab(folder)
    return folder


def test_gold_resolves_and_idle_does_not(lab: Path, tmp_path: Path) -> None:
    grade = read_record(run_chain(lab, tmp_path / "gold", "--agent", "gold"), "grade.json")
    assert (grade["outcome"], grade["reward"]) == ("resolved", 1.0), grade
    assert grade["integrity"] == {"verdict": "ok", "findings": []}
    assert grade["pass_to_pass"] == {"passed": 1, "total": 1}
    grade = read_record(run_chain(lab, tmp_path / "idle", "--agent", "idle"), "grade.json")
    assert (grade["outcome"], grade["reward"]) == ("unresolved", 0.0)
    assert grade["failing_tests"] == ["tests/test_calc.py::test_answer"]
    assert grade["pass_to_pass"] == {"passed": 1, "total": 1}


def test_agent_sees_no_tests_or_fix(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "looker.py").write_text(AGENT)
    unit = run_chain(lab, tmp_path / "store", "--allow-host", "--agent", f"{tmp_path}/looker.py:Looker")
    trajectory = (unit / "trajectory.json").read_text()
    assert "return 41" in trajectory
    for secret in ("return 42", "test_calc", "Bug Patch"):
        assert secret not in trajectory
    assert read_record(unit, "grade.json")["resolved"] is True
