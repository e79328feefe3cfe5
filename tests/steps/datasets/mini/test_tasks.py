"""The task repo: it passes swebench's own checks, and its derived files follow from its sources."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.datasets.mini import TASK_REPO
from swe_argo.steps.datasets.mini.forms import instance_ids
from tests.long_params import long_unless
from tests.steps.datasets.mini import regenerate
from tests.steps.datasets.mini.running import grade

IDS = instance_ids()
FIRST = long_unless([name for name in IDS if name.endswith("-1")], IDS)


def row(instance_id: str) -> dict[str, Any]:
    """Return the instance as swebench reads it."""
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


@pytest.mark.parametrize("instance_id", FIRST)
def test_derived_task_files_are_current(instance_id: str) -> None:
    from swebench.task.repo import load_yaml

    folder = TASK_REPO / "tasks" / instance_id
    fields = regenerate.task(instance_id)
    assert load_yaml(folder / "task.yaml") == fields
    patch = (folder / "test.patch").read_bytes().decode()
    expected = regenerate.eval_script(fields["base_commit"], patch, fields["log_parser"])
    assert (folder / "eval.sh").read_bytes().decode() == expected


@pytest.mark.parametrize("instance_id", FIRST)
def test_reference_patch_alone_resolves(instance_id: str, tmp_path: Path) -> None:
    instance = row(instance_id)
    report = grade(instance, "", tmp_path / "unpatched").inner
    assert report["resolved"] is False
    status = report["tests_status"]
    assert status["FAIL_TO_PASS"] == {"success": [], "failure": instance["FAIL_TO_PASS"]}
    assert status["PASS_TO_PASS"] == {"success": instance["PASS_TO_PASS"], "failure": []}
    graded = grade(instance, instance["patch"], tmp_path / "patched")
    assert graded.inner["resolved"] is True, (tmp_path / "patched" / "test_output.txt").read_text()
    assert not graded.reading.whole_log_used
    passing = {test for test, status in graded.reading.statuses.items() if status in regenerate.PASSING}
    assert passing == {*instance["FAIL_TO_PASS"], *instance["PASS_TO_PASS"]}


def test_issue_and_lists_are_sound() -> None:
    for instance_id in IDS:
        instance = row(instance_id)
        added = [line[1:].strip() for line in instance["patch"].splitlines() if line.startswith("+")]
        text = instance["problem_statement"] + instance["hints_text"]
        assert [line for line in added if len(line) > 20 and line in text] == [], instance_id
        lists = [{*instance[name]} for name in ("FAIL_TO_PASS", "PASS_TO_PASS")]
        assert all(lists)
        assert not lists[0] & lists[1]
