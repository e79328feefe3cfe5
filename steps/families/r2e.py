"""R2E-Gym: commits of eleven repositories; the tests hidden in the image must have the same results as with the fix.

Rows: R2E-Gym/R2E-Gym-Subset, -Lite, -V1. A row is a fixing commit; the image contains its parent. The fix's hash, the
image's tag (the same hash) and the column ``prompt`` (the gold patch) are part of the answer.

Sources of the scripts: R2E-Gym, agenthub/runtime/docker.py (``setup_env``, ``run_tests``, ``DOCKER_PATH``) and
repo_analysis/repo_analysis_args.py (``tests_cmd``), without set-up that needs a network or is for R2E-Gym's agent.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from shlex import quote

from swe_argo.steps.contracts.verdict import Finding
from swe_argo.steps.families.columns import RowColumns, SourceRow, bad_column, read_json, read_matching, read_text
from swe_argo.steps.families.family import Example, Row, RunGit
from swe_argo.steps.families.listed_tests import FamilyVerdict, StatusDifference
from swe_argo.steps.families.r2e_commits import NAME, parse_commit, render_fix
from swe_argo.steps.families.scripted import ScriptedFamily, TwinRules, remove_bytecode
from swe_argo.steps.grading.exit_code_channel import EXIT_CODE_VARIABLE
from swe_argo.steps.grading.twins.listed_tests import StoredFiles
from swe_argo.steps.sandbox.protocol import Sandbox

REPOS = frozenset(
    {
        *("aiohttp", "coveragepy", "datalad", "numpy", "orange3", "pandas"),
        *("mini", "pillow", "pyramid", "scrapy", "sympy", "tornado"),
    }
)
"""The repositories for which R2E-Gym has a parser (repo_analysis/execution_log_parser.py), and ``mini``."""
_STATUSES = frozenset({"PASSED", "FAILED", "ERROR"})
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ISSUE = re.compile(r"\[ISSUE\](.*)\[/ISSUE\]", re.DOTALL)
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*")
_EXPECTED = "expected_output_json"


def instance_id(row: SourceRow) -> str:
    """Return ``r2e__<repo>-<16 hex digits>``, from a hash of repository and fix that does not reveal the fix."""
    fix = read_matching(row, "commit_hash", f"a row of {repo(row)}", _COMMIT, "40 hex digits")[0]
    digest = hashlib.sha256(f"{repo(row)}:{fix}".encode()).hexdigest()
    return f"r2e__{repo(row)}-{digest[:16]}"


def repo(row: SourceRow) -> str:
    """Return R2E-Gym's name of the repository (``aiohttp``)."""
    name = read_text(row, "repo_name", "a row of R2E-Gym")
    if name not in REPOS:
        raise bad_column("a row of R2E-Gym", "repo_name", f"{name!r} is not one of {', '.join(sorted(REPOS))}")
    return name


def image(row: SourceRow) -> str:
    """Return the image: ``namanjain12/<repo>_final:<fix>``. Its tag is the fix, so an agent may not see it."""
    return read_matching(row, "docker_image", instance_id(row), _IMAGE, "an image with a tag")[0]


def problem_statement(row: SourceRow) -> str:
    """Return the issue text for an agent: between ``[ISSUE]`` and ``[/ISSUE]``, else the whole column.

    Source: R2E-Gym, agenthub/runtime/docker.py, ``get_task_instruction``.
    """
    text = read_text(row, "problem_statement", instance_id(row))
    inside = _ISSUE.search(text)
    return (inside[1] if inside else text).strip()


def expected_statuses(row: SourceRow) -> dict[str, str]:
    """Return test -> required status, including FAILED and ERROR. Rejects an empty map, which any log would match."""
    statuses = read_json(row, _EXPECTED, instance_id(row))
    if not isinstance(statuses, dict) or not _STATUSES.issuperset(map(str, statuses.values())):
        raise bad_column(instance_id(row), _EXPECTED, f"is not a map of tests to {', '.join(sorted(_STATUSES))}")
    if not statuses:
        raise bad_column(instance_id(row), _EXPECTED, "lists no tests, so any log would count as resolved")
    return statuses


def gold_patch(row: SourceRow) -> str:
    """Return the fix as a unified diff against the image: the commit's Python files without tests."""
    column = "parsed_commit_content"
    try:
        return render_fix(read_json(row, column, instance_id(row)))
    except ValueError as error:
        raise bad_column(instance_id(row), column, str(error)) from None


NO_TESTS = 72
"""Exit code of the set-up in an image without hidden tests."""
_ANSWER_FILES = (
    *("parsed_commit.json", "expected_test_output.json", "execution_result.json", "syn_issue.json"),
    *("modified_files.json", "modified_entities.json"),
)
"""Files that some images have beside the tests (``SKIP_FILES``)."""
_ANSWER_PATHS = " ".join(f"{folder}/{name}" for folder in ("/testbed", "/root", "") for name in _ANSWER_FILES)
_WARNINGS = "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning'"
_PYTEST = ".venv/bin/python -W ignore -m pytest -rA r2e_tests"
_PATH = "/root/.venv/bin:/root/.local/bin:/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMMIT_CHANGES = """
git() {
  command git -c safe.directory='*' -c user.name=image -c user.email=image@localhost -c core.hooksPath=/dev/null "$@"
}
git add -u
git diff --cached --quiet || git commit -q --no-verify --no-gpg-sign -m 'State of the image'
"""
"""Commits the changes that the image's set-up made, so that a patch contains only the agent's."""
REMOVE_TESTS = f"""#!/bin/bash
set -eu
rm -rf -- /r2e_tests /testbed/r2e_tests /testbed/run_tests.sh {_ANSWER_PATHS}
{remove_bytecode("/testbed")}
"""
"""Removes the hidden tests from an agent's sandbox."""
RUN_TESTS = f"""#!/bin/bash
set -eu
export PATH={_PATH}:$PATH
cd /testbed
rm -rf /testbed/r2e_tests
ln -s /root/r2e_tests /testbed/r2e_tests
set +e
bash /root/run_tests.sh
{EXIT_CODE_VARIABLE}=$?
rm -f /testbed/r2e_tests
exit ${EXIT_CODE_VARIABLE}
"""
"""Runs the hidden tests, replacing anything that the patch put in their place; ``judge`` reads its output.

The link to the tests exists only while they run, since agents could read them through a permanent link.
"""


def pytest_command(row: SourceRow) -> str:
    """Return the command of the image's ``run_tests.sh``."""
    if repo(row) == "orange3":
        return f"QT_QPA_PLATFORM=minimal {_WARNINGS} xvfb-run --auto-servernum {_PYTEST}"
    return f"{_WARNINGS} {_PYTEST}"


def prepare_script(row: SourceRow) -> str:
    """Return a script that moves the hidden tests of a grading sandbox to /root, before a patch is applied.

    It writes ``run_tests.sh`` if the image has none. Its exit code is ``NO_TESTS`` if there are no tests.
    """
    return f"""#!/bin/bash
set -eu
mkdir -p /root/.local/bin
move() {{ if [ -e "$1" ] && [ ! -L "$1" ]; then rm -rf "$2" && mv "$1" "$2"; fi; }}
move /testbed/r2e_tests /root/r2e_tests
move /r2e_tests /root/r2e_tests
move /testbed/run_tests.sh /root/run_tests.sh
rm -f /testbed/r2e_tests
[ -d /root/r2e_tests ] || {{ echo 'the image has no hidden tests' >&2; exit {NO_TESTS}; }}
find /root/r2e_tests -name __pycache__ -prune -exec rm -rf {{}} +
ln -sfn /testbed/.venv /root/.venv
find /testbed/.venv/bin/ -mindepth 1 -maxdepth 1 -exec ln -sf -t /root/.local/bin {{}} +
{remove_bytecode("/testbed")}
[ -f /root/run_tests.sh ] || printf '%s\\n' {quote(pytest_command(row))} > /root/run_tests.sh
"""


def list_hidden_tests(box: Sandbox) -> list[str]:
    """Return the Python files of the hidden tests after ``prepare_script``, relative to /root."""
    result = box.exec("cd /root && find r2e_tests -name '*.py' -type f", timeout_s=60)
    return sorted(result.stdout.decode(errors="replace").split("\n")[:-1])


_NOISE = re.compile(r"\x1b\[[0-9;]*m|\r")
_KEY_COLOUR = re.compile(r"\x1b\[\d+m")
_SUMMARY = "short test summary info"
_REASON = " - "


def judge(log: str, row: SourceRow) -> FamilyVerdict:
    """Return the verdict on the output of ``run_tests.sh``."""
    expected = comparable_statuses(row)
    _, *summaries = _NOISE.sub("", log).split(_SUMMARY)
    reported = _comparable(_parse_summary(summaries[0])) if summaries else {}
    differences = {
        key: StatusDifference(reported.get(key), expected.get(key))
        for key in dict.fromkeys([*expected, *filter(None, reported)])
        if reported.get(key) != expected.get(key)
    }
    # The empty key counts as a test, although its status is not compared: R2E-Gym does the same.
    matches = all(expected.get(key) == status for key, status in reported.items() if key)
    resolved = len(reported) == len(expected) and matches
    findings = []
    if len(summaries) > 1:
        detail = f"{len(summaries)} summaries in the log; the first one counts"
        findings.append(Finding(code="summary_repeated", detail=detail))
    if resolved and (missing := [key for key, difference in differences.items() if difference.reported is None]):
        detail = f"{len(missing)} expected tests are not in the log, first {missing[0]}"
        findings.append(Finding(code="tests_missing", detail=detail))
    return FamilyVerdict(
        resolved=resolved,
        statuses=reported,
        differences=differences,
        unreadable="" if summaries else "pytest printed no summary",
        findings=findings,
    )


def comparable_statuses(row: SourceRow) -> dict[str, str]:
    """Return the expected map, prepared for comparison."""
    return _comparable(expected_statuses(row))


def read_name(node_id: str) -> str:
    """Return a passed test's name in the map."""
    name = node_id.partition("::")[2] if "/" in node_id.partition("::")[0] else node_id
    return name.replace("::", ".").split(_REASON)[0]


def _parse_summary(summary: str) -> dict[str, str]:
    """Parse test -> PASSED, FAILED or ERROR from the text between the first and the second summary title.

    A line's status is the first of the three words in this order that it contains. The name is the text after the
    first ``::``, with ``.`` for further ones, and empty without ``::``.
    """
    statuses: dict[str, str] = {}
    for line in summary.strip().split("\n"):
        status = next((word for word in ("PASSED", "FAILED", "ERROR") if word in line), None)
        if status is not None:
            name = ".".join(line.split("::")[1:])
            statuses[name if status == "PASSED" else name.split(_REASON)[0]] = status
    return statuses


def _comparable(statuses: dict[str, str]) -> dict[str, str]:
    """Return the map with keys cut at the first `` - ``; of equal keys, the last in order counts."""
    plain = {_KEY_COLOUR.sub("", key): status for key, status in statuses.items()}
    return {key.split(_REASON)[0]: plain[key] for key in sorted(plain)}


_PYTHON = """#!/bin/sh
# Runs the first python3 on PATH that has pytest.
IFS=:
for folder in $PATH; do
  if [ -x "$folder/python3" ] && "$folder/python3" -c 'import pytest' 2>/dev/null; then
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec "$folder/python3" "$@"
  fi
done
echo 'no python3 with pytest' >&2
exit 127
"""


def _make_row(issue: Row) -> Row:
    """Return a bundled issue's row: named by the fix's commit, with tests hidden in the image."""
    fix = hashlib.sha1(issue["patch"].encode(), usedforsecurity=False).hexdigest()
    tests = [*issue["FAIL_TO_PASS"], *issue["PASS_TO_PASS"]]
    return {
        "repo_name": "mini",
        "docker_image": f"swe-argo/r2e.{issue['instance_id'].replace('__', '.')}:{fix}",
        "commit_hash": fix,
        "parsed_commit_content": json.dumps(parse_commit(issue["patch"])),
        "modified_files": [*NAME.findall(issue["patch"]), _test_file(issue)],
        "problem_statement": f"[ISSUE]\n{issue['problem_statement']}[/ISSUE]",
        "prompt": issue["patch"],
        _EXPECTED: json.dumps({test.partition("::")[2].replace("::", "."): "PASSED" for test in tests}),
    }


def _change_image(testbed: Path, issue: Row, git: RunGit) -> None:
    """Add a virtual environment and the hidden tests. The working tree is edited, as in some images of R2E-Gym."""
    with (testbed / "pyproject.toml").open("a") as edited:
        edited.write("\n# edited when the image was built\n")
    excluded = testbed / ".git" / "info" / "exclude"
    excluded.parent.mkdir(exist_ok=True)
    excluded.write_text(".venv\n")
    python = testbed / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_PYTHON)
    python.chmod(0o755)
    hidden = testbed / "r2e_tests" / "test_1.py"
    hidden.parent.mkdir()
    hidden.write_bytes(git("show", f"future:{_test_file(issue)}"))
    (testbed / "run_tests.sh").write_text(f"{pytest_command(_make_row(issue))} -p no:cacheprovider\n")


def _test_file(issue: Row) -> str:
    return str(issue["FAIL_TO_PASS"][0].partition("::")[0])


FAMILY = ScriptedFamily(
    name="r2e",
    # R2E-Gym's copies of SWE-bench rows lack the expected map.
    columns=RowColumns(("repo_name", "docker_image", "commit_hash", _EXPECTED)),
    facts={
        "instance_id": instance_id,
        "repo": repo,
        "image": image,
        "problem_statement": problem_statement,
        "patch": gold_patch,
    },
    checks=(expected_statuses,),
    json_columns=(_EXPECTED,),
    answer_columns=("repo_name", "commit_hash", "docker_image", _EXPECTED),
    agent_script=lambda _instance: REMOVE_TESTS + _COMMIT_CHANGES,
    grading_script=lambda row: prepare_script(row) + _COMMIT_CHANGES,
    test_script=lambda _row: RUN_TESTS,
    timeout_s=lambda _row: 300,
    judge=judge,
    twins=TwinRules(
        listed=lambda row: (None, [test for test, status in comparable_statuses(row).items() if status == "PASSED"]),
        read_id=lambda _row, node_id: read_name(node_id),
        files=lambda _row, script: StoredFiles(script, "/root", list_hidden_tests, REMOVE_TESTS),
    ),
    example=Example(_make_row, _change_image),
    setup_failures={NO_TESTS: "has no hidden tests (/r2e_tests): it is not an image of R2E-Gym"},
    files_outside="R2E-Gym's hidden tests",
)
