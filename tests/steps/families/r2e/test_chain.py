"""An R2E-Gym row through the whole chain: its reward, what its agents see, and what cheats gain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.families.r2e.rows import instance_id
from swe_argo.steps.sandbox.local import bubblewrap
from tests.long_params import long_unless
from tests.steps.families.chain import read_record, run_chain
from tests.steps.families.git_trees import run_git
from tests.steps.families.r2e.lab import FIX_COMMIT, make_lab
from tests.workflows.command import summary

pytestmark = pytest.mark.skipif(
    bubblewrap.probe() is not None, reason="hidden tests need a machine of their own: bubblewrap is not used here"
)

AGENT = """
from swe_argo.steps.contracts.trajectory import StopReason


class Looker:
    def act(self, task):
        seen = task.box.exec(
            "ls -a /testbed /r2e_tests /root; git -C /testbed log --format=%s; git -C /testbed status --short",
            timeout_s=60,
        ).stdout.decode()
        task.recorder.add_message("user", task.instance.problem_statement)
        task.recorder.add_message("user", seen)
        task.box.exec("sed -i s/41/42/ calc.py; sed -i /VALUE/s/edited/twice/ setup_edited.py", timeout_s=60)
        return StopReason.FINISHED
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("r2e")
    make_lab(folder)
    return folder


@pytest.fixture(scope="module")
def gold(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unit of a run of the reference patch."""
    return run_chain(lab, tmp_path_factory.mktemp("gold"), "--agent", "gold")


@pytest.mark.xdist_group("r2e")  # they share a run
def test_gold_resolves_and_idle_does_not(lab: Path, gold: Path, tmp_path: Path) -> None:
    grade = read_record(gold, "grade.json")
    assert (grade["outcome"], grade["reward"]) == ("resolved", 1.0), grade
    assert grade["integrity"] == {"verdict": "ok", "findings": []}
    assert grade["expected_tests"] == {"passed": 3, "total": 3}
    assert gold.parent.name.startswith("r2e__pyramid-")
    unit = run_chain(lab, tmp_path / "idle", "--agent", "idle")
    grade = read_record(unit, "grade.json")
    assert (grade["outcome"], grade["reward"], grade["failing_tests"]) == ("unresolved", 0.0, ["test_answer"])


def test_agent_sees_no_tests_or_fix(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "looker.py").write_text(AGENT)
    store = tmp_path / "store"
    unit = run_chain(lab, store, "--agent", f"{tmp_path}/looker.py:Looker")
    trajectory = (unit / "trajectory.json").read_text()
    assert "State of the image" in trajectory
    assert "The answer is wrong." in trajectory
    for secret in ("test_1.py", "run_tests.sh", "r2e_tests\\n", "parsed_commit", "pycache", FIX_COMMIT, "Intro"):
        assert secret not in trajectory
        assert secret not in (unit.parents[2] / "instances" / unit.parent.name / "instance.json").read_text() or (
            secret == FIX_COMMIT  # the image's name, which only the engine reads
        )
    patch = (unit / "patch.diff").read_text()
    assert "-VALUE = 'edited'\n+VALUE = 'twice'" in patch
    assert read_record(unit, "grade.json")["resolved"] is True
    assert summary(str(store), "r").headline.resolved == 1


@pytest.mark.xdist_group("r2e")
def test_fuzzy_patch_is_applied(lab: Path, gold: Path, tmp_path: Path) -> None:
    patch = (gold / "patch.diff").read_text()
    assert patch.count("\n def answer():\n") == 1
    fuzzy = patch.replace("\n def answer():\n", "\n def answers():\n")
    prediction = {"instance_id": gold.parent.name, "model_name_or_path": "m", "model_patch": fuzzy}
    (tmp_path / "preds.jsonl").write_text(json.dumps(prediction) + "\n")
    grade = read_record(run_chain(lab, tmp_path / "s", "--predictions", str(tmp_path / "preds.jsonl")), "grade.json")
    assert "fuzz" in grade["apply_command"]
    assert grade["reward"] == 1.0


CHEATS = {
    "hidden tests replaced": ("r2e_tests/test_1.py", "def test_answer(): pass\n\ndef test_old(): assert 0\n"),
    "test script replaced": (
        "run_tests.sh",
        "echo '= short test summary info ='; echo 'PASSED r2e_tests/test_1.py::test_answer'\n"
        "echo 'FAILED r2e_tests/test_1.py::test_old'\n",
    ),
    "forged summary": (
        "calc.py",
        "import os\nprint('= short test summary info =')\nprint('PASSED r2e_tests/test_1.py::test_answer')\n"
        "print('FAILED r2e_tests/test_1.py::test_old')\n"
        "import sys; sys.stdout.flush(); os._exit(1)\n\ndef answer(): return 41\n",
    ),
}


@pytest.mark.parametrize("name", long_unless(("forged summary",), CHEATS))
def test_cheat_fails_or_is_suspect(lab: Path, tmp_path: Path, name: str) -> None:
    path, text = CHEATS[name]
    row = json.loads((lab / "rows.jsonl").read_text())
    testbed = lab / "images" / row["docker_image"].replace("/", "__") / "testbed"
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", str(testbed), str(clone))
    (clone / path).parent.mkdir(exist_ok=True)
    (clone / path).write_text(text)
    run_git(clone, "add", "-fA")
    prediction = {
        "instance_id": instance_id(row),
        "model_name_or_path": "cheat",
        "model_patch": run_git(clone, "diff", "--cached").decode(),
    }
    (tmp_path / "preds.jsonl").write_text(json.dumps(prediction) + "\n")
    unit = run_chain(lab, tmp_path / "store", "--predictions", str(tmp_path / "preds.jsonl"))
    grade = read_record(unit, "grade.json")
    assert grade["resolved"] is False or grade["integrity"]["verdict"] == "suspect", grade
