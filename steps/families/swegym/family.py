"""SWE-Gym: issues of other repositories, graded by SWE-bench's rule from before markers in logs."""

from __future__ import annotations

from swe_argo.steps.families import issue_columns
from swe_argo.steps.families.columns import SourceRow
from swe_argo.steps.families.listed_tests import LISTS
from swe_argo.steps.families.scripted import ScriptedFamily, TwinRules
from swe_argo.steps.families.swegym import rows
from swe_argo.steps.families.swegym.script import TIMEOUT_S, eval_script
from swe_argo.steps.families.swegym.specs import is_repository, spec_of
from swe_argo.steps.families.swegym.verdict import judge, parse_statuses
from swe_argo.steps.grading.twins.listed_tests import find_id


def _check(row: SourceRow) -> None:
    issue_columns.listed_tests(row)
    issue_columns.hidden_patch(row)
    spec_of(row)


FAMILY = ScriptedFamily(
    name="swegym",
    columns=rows.COLUMNS,
    accepts=lambda row: is_repository(str(row["repo"])),
    facts={
        "instance_id": rows.instance_id,
        "repo": rows.repo,
        "version": rows.version,
        "base_commit": rows.base_commit,
        "image": rows.image,
        "problem_statement": issue_columns.problem_statement,
        "hints_text": issue_columns.hints_text,
        "patch": issue_columns.gold_patch,
    },
    check=_check,
    json_columns=LISTS,
    answer_columns=("instance_id", "repo", "version", "base_commit", "test_patch", "FAIL_TO_PASS", "PASS_TO_PASS"),
    agent_script=None,
    grading_script=None,
    test_script=eval_script,
    timeout_s=lambda _row: TIMEOUT_S,
    judge=judge,
    twins=TwinRules(issue_columns.listed_tests, lambda _row, node_id: find_id(parse_statuses, node_id)),
)
