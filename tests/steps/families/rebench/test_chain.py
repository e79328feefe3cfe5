"""Rows of SWE-rebench through the whole chain: V2 at a working directory of its own, V1 at /testbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long_params import long_unless
from tests.steps.families.chain import read_record, run_chain
from tests.steps.families.rebench.lab import make_lab

AGENT = """
from swe_argo.steps.contracts.trajectory import StopReason


class Looker:
    def act(self, task):
        seen = task.box.exec("pwd; git status --short; ls -R; git log --all -p", timeout_s=60).stdout.decode()
        task.recorder.add_message("user", f"{task.instance.workdir} {task.box.machine.workdir} {seen}")
        task.box.exec("sed -i s/41/42/ calc.py", timeout_s=60)
        return StopReason.FINISHED
"""


@pytest.fixture(scope="module", params=long_unless(("v2",), ("v1", "v2")))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"rebench-{request.param}")
    make_lab(folder, request.param)
    return folder


def test_gold_resolves_and_idle_does_not(lab: Path, tmp_path: Path) -> None:
    grade = read_record(run_chain(lab, tmp_path / "gold", "--agent", "gold"), "grade.json")
    assert (grade["outcome"], grade["reward"]) == ("resolved", 1.0), grade
    assert grade["integrity"] == {"verdict": "ok", "findings": []}
    assert grade["machine"]["workdir"] == ("/calc" if "v2" in lab.name else "/testbed")
    unit = run_chain(lab, tmp_path / "idle", "--agent", "idle")
    grade = read_record(unit, "grade.json")
    assert (grade["outcome"], grade["reward"]) == ("unresolved", 0.0)
    assert grade["pass_to_pass"] == {"passed": 1, "total": 1}
    assert "tests/test_calc.py::test_answer" in grade["failing_tests"]
    assert read_record(unit, "solve.json")["patch_bytes"] == 0  # what making the image changed is no agent's


def test_agent_works_in_image_workdir(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "looker.py").write_text(AGENT)
    unit = run_chain(lab, tmp_path / "store", "--allow-host", "--agent", f"{tmp_path}/looker.py:Looker")
    trajectory = (unit / "trajectory.json").read_text()
    place = "/calc" if "v2" in lab.name else "/testbed"
    assert f"{place} {place} {place}\\n" in trajectory
    assert "return 41" in trajectory
    for secret in ("return 42", "test_answer", "test_new"):
        assert secret not in trajectory
    assert read_record(unit, "grade.json")["resolved"] is True
