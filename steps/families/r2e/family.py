"""R2E-Gym's own environments: a commit's tests, hidden in the image, must come out as they did with the commit."""

from __future__ import annotations

from steps.families.columns import SourceRow
from steps.families.r2e import rows
from steps.families.r2e.gold import gold_patch
from steps.families.r2e.script import NO_TESTS, TESTS_TIMEOUT_S, prepare_script, remove_script, run_script
from steps.families.r2e.verdict import judge
from steps.families.scripted import ScriptedFamily
from steps.grading.patches.suite import Suite


def _suite(row: SourceRow) -> Suite:
    """pytest finds conftest.py and settings above the link to the hidden tests, in the repository's own folder."""
    tests = "r2e_tests"
    return Suite(rows.repo(row), test_files=frozenset({f"{tests}/test_1.py"}), collected=frozenset({tests}))


FAMILY = ScriptedFamily(
    name="r2e",
    columns=rows.COLUMNS,
    facts={
        "instance_id": rows.instance_id,
        "repo": rows.repo,
        "image": rows.image,
        "problem_statement": rows.problem_statement,
        "patch": gold_patch,
    },
    check=rows.expected_statuses,
    json_columns=("expected_output_json",),
    answer_columns=("repo_name", "commit_hash", "docker_image", "expected_output_json"),
    agent_script=lambda _instance: remove_script(),
    grading_script=prepare_script,
    test_script=lambda _row: run_script(),
    timeout_s=lambda _row: TESTS_TIMEOUT_S,
    judge=judge,
    suite=_suite,
    commits_changes=True,
    setup_failures={NO_TESTS: "has no hidden tests (/r2e_tests): it is no image of R2E-Gym"},
    outside="R2E-Gym keeps its hidden tests",
)
