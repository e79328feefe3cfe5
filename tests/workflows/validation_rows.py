"""A dataset with one valid instance and three invalid ones, each for another reason."""

from __future__ import annotations

import json
from pathlib import Path

from tests.steps.families.chain import BROKEN, FIXED, commit_all, make_testbed
from tests.steps.families.git_trees import run_git

FAMILY = """
from pathlib import Path

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.listed_tests import FamilyVerdict, ListOutcome, StatusDifference
from swe_argo.steps.families.columns import RowColumns
from swe_argo.steps.families.scripted import ScriptedFamily



def judge(log, row):
    statuses = {"answer": "PASSED" if f"answer {row['wants']}" in log else "FAILED", "other": "PASSED"}
    if row["flips"] and statuses["answer"] == "PASSED":
        # Another test fails the second time that the fixed code is judged: flaky, but not by chance.
        calls = Path(row["flips"])
        calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
        statuses["other"] = "FAILED" if len(calls.read_text()) == 2 else "PASSED"
    failed = [test for test, status in statuses.items() if status == "FAILED"]
    lists = {
        name: ListOutcome([test for test in half if test not in failed], [test for test in half if test in failed])
        for name, half in (("FAIL_TO_PASS", ["answer"]), ("PASS_TO_PASS", ["other"]))
    }
    differences = {test: StatusDifference("FAILED", "PASSED") for test in failed}
    return FamilyVerdict(not failed, statuses, differences, lists=lists)


def check(row):
    if not row["wants"]:
        raise ConfigError(f"{row['id']}: wants is empty", field="dataset")


ACME = ScriptedFamily(
    checks=(check,),
    name="acme",
    columns=RowColumns(("wants",)),
    facts={
        "instance_id": lambda row: row["id"],
        "repo": lambda row: f"acme/{row['id']}",
        "image": lambda row: "acme",
        "problem_statement": lambda row: "It is wrong.",
        "patch": lambda row: row["gold"],
    },
    answer_columns=("wants", "flips"),
    agent_script=None,
    grading_script=None,
    test_script=lambda row: (
        'echo answer $(python -c "import calc; print(calc.answer())") | tee .git/log\\n'
        f"grep -q {row['wants']} .git/log; SWEBENCH_TEST_EXIT_CODE=$?\\n"
    ),
    timeout_s=lambda row: 60,
    judge=judge,
)
"""


def make_validation_rows(folder: Path) -> list[str]:
    """Write rows, image and family below ``folder``; return the flags of a command that reads them."""
    testbed = make_testbed(folder, "acme")
    (testbed / "calc.py").write_text(BROKEN)
    commit_all(testbed, "base")
    (testbed / "calc.py").write_text(FIXED)
    gold = run_git(testbed, "diff").decode()
    run_git(testbed, "checkout", "-q", ".")
    (folder / "acme.py").write_text(FAMILY)
    wants = {"good": "42", "gold-fails": "43", "idle-resolves": "4", "flaky": "42"}
    rows = [
        {"id": name, "wants": expected, "gold": gold, "flips": str(folder / "calls") if name == "flaky" else ""}
        for name, expected in wants.items()
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [*("--local-images", str(folder / "images")), *("--family", f"{folder}/acme.py:ACME")]


def make_ungradeable_row(folder: Path) -> None:
    """Append a row that no rule grades."""
    with (folder / "rows.jsonl").open("a") as file:
        file.write(json.dumps({"id": "no-rule", "wants": "", "gold": "", "flips": ""}) + "\n")
