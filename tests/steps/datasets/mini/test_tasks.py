"""The task repo: whole by swebench's own checks, and every derived file is what its sources make it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.datasets.mini import TASK_REPO, materialise
from swe_argo.steps.datasets.mini.content import instance_ids
from tests.steps.datasets.mini import regenerate
from tests.steps.datasets.mini.running import git, grade

IDS = instance_ids()


def row(instance_id: str) -> dict[str, Any]:
    """The instance as swebench reads it."""
    from swebench.task.repo import load_task

    loaded: dict[str, Any] = load_task(TASK_REPO / "tasks" / instance_id)
    return loaded


def test_task_repo_passes_checks() -> None:
    from swebench.task.checks import check_task_repo

    assert [str(problem) for problem in check_task_repo(TASK_REPO)] == []


def test_mini_has_twelve_instances() -> None:
    from swebench.task.repo import published_tasks

    rows = published_tasks(TASK_REPO)["mini"]["test"]
    assert [instance["instance_id"] for instance in rows] == IDS
    assert Counter(instance["repo"] for instance in rows) == dict.fromkeys((f"mini/{n}" for n in regenerate.PARSERS), 2)


def test_mini_covers_real_cases() -> None:
    rows = [row(name) for name in IDS]
    ids = [test for instance in rows for key in ("FAIL_TO_PASS", "PASS_TO_PASS") for test in instance[key]]
    assert sum(instance["patch"].count("diff --git") > 1 for instance in rows) >= 2
    assert any("new file mode" in instance["test_patch"] for instance in rows)
    assert any(test.count("[") > test.count("]") for test in ids), "an id cut at its first blank"
    assert any(test.endswith(" and ascii]") for test in ids), "a whole id with blanks"
    assert any(test.endswith("[[mixed]]") for test in ids), "brackets in a parameter"
    assert any(test.endswith("[/main.ini]") for test in ids), "a path cut to its last part"
    assert any(test.startswith("test_even_split (tests.test_money.SplitTests") for test in ids), "unittest"
    assert {bool(instance["hints_text"]) for instance in rows} == {True, False}


@pytest.mark.parametrize("instance_id", IDS)
def test_derived_task_files_are_current(instance_id: str) -> None:
    from swebench.task.repo import load_yaml

    folder = TASK_REPO / "tasks" / instance_id
    fields = regenerate.task(instance_id)
    assert load_yaml(folder / "task.yaml") == fields
    patch = (folder / "test.patch").read_bytes().decode()
    expected = regenerate.eval_script(fields["base_commit"], patch, fields["log_parser"])
    assert (folder / "eval.sh").read_bytes().decode() == expected


@pytest.mark.parametrize("instance_id", IDS)
def test_unpatched_instance_fails(instance_id: str, tmp_path: Path) -> None:
    instance = row(instance_id)
    report = grade(instance, "", tmp_path).inner
    assert report["resolved"] is False
    status = report["tests_status"]
    assert status["FAIL_TO_PASS"] == {"success": [], "failure": instance["FAIL_TO_PASS"]}
    assert status["PASS_TO_PASS"] == {"success": instance["PASS_TO_PASS"], "failure": []}


@pytest.mark.parametrize("instance_id", IDS)
def test_reference_patch_resolves(instance_id: str, tmp_path: Path) -> None:
    instance = row(instance_id)
    graded = grade(instance, instance["patch"], tmp_path)
    assert graded.inner["resolved"] is True, (tmp_path / "test_output.txt").read_text()
    assert not graded.reading.whole_log_used
    passing = {test for test, status in graded.reading.statuses.items() if status in regenerate.PASSING}
    assert passing == {*instance["FAIL_TO_PASS"], *instance["PASS_TO_PASS"]}


@pytest.mark.parametrize("instance_id", IDS)
def test_patches_equal_git_output(instance_id: str, tmp_path: Path) -> None:
    materialise(instance_id, tmp_path)
    testbed, folder = tmp_path / "testbed", TASK_REPO / "tasks" / instance_id
    for name in ("gold.patch", "test.patch"):
        git(testbed, "apply", str(folder / name))
    git(testbed, "add", "--intent-to-add", ".")
    diff = git(testbed, "diff", "--no-color", "--abbrev=7")
    assert diff == "".join((folder / name).read_bytes().decode() for name in ("gold.patch", "test.patch"))


def test_issue_reveals_no_line_of_fix() -> None:
    for instance_id in IDS:
        instance = row(instance_id)
        added = [line[1:].strip() for line in instance["patch"].splitlines() if line.startswith("+")]
        text = instance["problem_statement"] + instance["hints_text"]
        assert [line for line in added if len(line) > 20 and line in text] == [], instance_id


def test_test_lists_are_disjoint() -> None:
    for instance_id in IDS:
        lists = json.loads((TASK_REPO / "tasks" / instance_id / "tests.json").read_text())
        assert lists["FAIL_TO_PASS"]
        assert lists["PASS_TO_PASS"]
        assert not {*lists["FAIL_TO_PASS"]} & {*lists["PASS_TO_PASS"]}
