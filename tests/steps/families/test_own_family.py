"""A family of one's own, in a file outside of the package: the value of docs/add-a-family.md, filled in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.errors import EXIT_CONFIG
from tests.steps.families.chain import BROKEN, FIXED, commit_all, make_testbed, read_record, run_chain
from tests.steps.families.git_trees import run_git
from tests.workflows.command import summary, swe_argo

FAMILY = """
from swe_argo.steps.families.family_verdict import FamilyVerdict, StatusDifference
from swe_argo.steps.families.columns import RowColumns
from swe_argo.steps.families.scripted import ScriptedFamily



def judge(log, row):
    status = "PASSED" if f"answer {row['acme_answer']}" in log else "FAILED"
    differences = {} if status == "PASSED" else {"answer": StatusDifference(status, "PASSED")}
    close = "answer 41" in log
    return FamilyVerdict(status == "PASSED", {"answer": status}, differences, partial_reward=0.75 if close else None)


ACME = ScriptedFamily(
    name="acme",
    columns=RowColumns(("acme_answer",)),
    facts={
        "instance_id": lambda row: row["acme_id"],
        "repo": lambda row: "acme/calc",
        "image": lambda row: "acme",
        "problem_statement": lambda row: row["task"],
        "patch": lambda row: row["gold"],
    },
    answer_columns=("acme_answer",),
    agent_script=None,
    grading_script=None,
    test_script=lambda row: (
        'echo answer $(python -c "import calc; print(calc.answer())") | tee .git/log\\n'
        f"grep -q {row['acme_answer']} .git/log; SWEBENCH_TEST_EXIT_CODE=$?\\n"
    ),
    timeout_s=lambda row: 60,
    judge=judge,
)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    testbed = make_testbed(tmp_path, "acme")
    (testbed / "calc.py").write_text(BROKEN)
    commit_all(testbed, "base")
    (testbed / "calc.py").write_text(FIXED)
    gold = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    (tmp_path / "acme.py").write_text(FAMILY)
    row = {"acme_id": "acme-1", "acme_answer": "42", "task": "It is wrong.", "gold": gold}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path


def test_own_family_grades_a_run(lab: Path) -> None:
    own = ("--family", f"{lab}/acme.py:ACME")
    assert read_record(run_chain(lab, lab / "gold", *own, "--agent", "gold"), "grade.json")["reward"] == 1.0
    unit = run_chain(lab, lab / "idle", *own, "--agent", "idle")
    grade = read_record(unit, "grade.json")
    assert (grade["outcome"], grade["failing_tests"], grade["reward"]) == ("unresolved", ["answer"], 0.75)
    assert summary(str(lab / "idle"), "r").mean_reward == 0.75
    page = (lab / "idle" / "runs" / "r" / "report" / "report.html").read_text()
    assert "Mean reward 0.750" in page
    assert "acme.py:ACME&#39;s own rule, its own limit for tests" in page
    answer = json.loads((unit.parents[2] / "instances" / "acme-1" / "answer.json").read_text())
    assert answer["source"] == {"acme_answer": "42"}
    assert "42" not in (unit.parents[2] / "instances" / "acme-1" / "instance.json").read_text()


@pytest.mark.long
def test_resume_refuses_a_changed_rule(lab: Path) -> None:
    own = ("--family", f"{lab}/acme.py:ACME")
    run_chain(lab, lab / "s", *own, "--agent", "idle")
    (lab / "acme.py").write_text(FAMILY.replace("0.75", "0.5"))
    words = ("--dataset", str(lab / "rows.jsonl"), "--store", str(lab / "s"), "--run-id", "r", "--agent", "idle", *own)
    result = swe_argo("run", *words)
    assert result.returncode == EXIT_CONFIG
    assert "family.file was" in result.stderr


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("r2", "unknown task family 'r2'; known: r2e, swesmith, rebench, swegym, harbor, swebench"),
        ("acme.py:NONE_SUCH", "has no NONE_SUCH"),
    ],
)
def test_invalid_family_name_is_one_line(lab: Path, family: str, reason: str) -> None:
    option = f"{lab}/{family}" if ":" in family else family
    result = swe_argo(
        "run", "--agent", "idle", "--dataset", str(lab / "rows.jsonl"), "--store", str(lab / "s"), "--family", option
    )
    assert result.returncode == EXIT_CONFIG
    (line,) = result.stderr.strip().splitlines()
    assert reason in line
