"""The gold patch of an R2E-Gym row is what git wrote, and git takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.r2e.example import parse_commit
from swe_argo.steps.families.r2e.gold import gold_patch
from tests.paths import DATA, needs_data
from tests.steps.families.git_trees import Tree, diff_trees, differing_trees, read_tree, run_git, write_tree


def make_row(commit: Any) -> dict[str, Any]:
    return {"repo_name": "aiohttp", "commit_hash": "b" * 40, "parsed_commit_content": commit}


@needs_data
def test_gold_patch_matches_real_row(tmp_path: Path) -> None:
    folder = DATA / "r2e" / "aiohttp_f0d74880"
    row = json.loads((folder / "row_rebuilt.json").read_text())
    gold = gold_patch(row)
    assert gold == (folder / "gold.diff").read_text()
    commit = json.loads(row["parsed_commit_content"])
    assert gold_patch(row | {"parsed_commit_content": commit}) == gold
    sources = {file_diff["header"]["file"]["path"]: file_diff for file_diff in commit["file_diffs"]}
    fixed = sources["aiohttp/web_urldispatcher.py"]
    write_tree(tmp_path, {"aiohttp/web_urldispatcher.py": (fixed["old_file_content"].encode(), False)})
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "apply", stdin=gold.encode())
    assert (tmp_path / "aiohttp/web_urldispatcher.py").read_text() == fixed["new_file_content"]


@settings(max_examples=40, deadline=None)
@given(differing_trees(), st.sampled_from(["--no-renames", "-M"]))
def test_gold_patch_round_trips(tmp_path_factory: pytest.TempPathFactory, trees: Any, option: str) -> None:
    """New, deleted, renamed and empty files, changed modes, files without a final newline, among any content."""
    before: Tree
    before, after = trees
    folder = tmp_path_factory.mktemp("commit")
    diff = diff_trees(folder, before, after, option)
    gold = gold_patch(make_row(json.dumps(parse_commit(diff.decode("utf-8", "surrogateescape")), indent=4)))
    assert gold.encode("utf-8", "surrogateescape") == diff
    run_git(folder, "apply", stdin=diff)
    assert read_tree(folder) == after


@pytest.mark.parametrize(
    "diff",
    [
        # What git writes of a file that was renamed, of a name with a blank and of one with an umlaut.
        "diff --git a/a.py b/b.py\nsimilarity index 90%\nrename from a.py\nrename to b.py\nindex 1..2 100644\n"
        "--- a/a.py\n+++ b/b.py\n@@ -1 +1 @@\n-x\n+y\n",
        "diff --git a/a b.py b/a b.py\nindex 1..2 100644\n--- a/a b.py\t\n+++ b/a b.py\t\n"
        "@@ -1 +1 @@ def f():\n-x\n+y\n",
        'diff --git "a/\\303\\274.py" "b/\\303\\274.py"\nnew file mode 100644\nindex 0000000..e69de29\n',
    ],
)
def test_names_are_quoted_as_in_git(diff: str) -> None:
    assert gold_patch(make_row(parse_commit(diff))) == diff


def test_gold_patch_has_python_sources() -> None:
    part = "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-x\n+y\n"
    paths = ("a.py", "a.rst", "tests/a.py", "test_a.py", "b.py")
    commit = parse_commit("".join(part.format(path) for path in paths))
    assert gold_patch(make_row(commit)) == part.format("a.py") + part.format("b.py")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda commit: commit["file_diffs"].clear(), "there is no gold patch"),
        (lambda commit: commit.pop("file_diffs"), "is not a parsed commit: file_diffs: Field required"),
        (lambda commit: commit["file_diffs"][0].update(is_binary_file=True), "has a.py as a binary file"),
        (lambda commit: commit["file_diffs"][0]["hunks"][0]["line_group"]["all_lines"].clear(), "is shorter than"),
    ],
)
def test_invalid_commit_is_named(change: Any, word: str) -> None:
    commit = parse_commit("diff --git a/a.py b/a.py\nindex 1..2\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n")
    change(commit)
    with pytest.raises(ConfigError) as error:
        gold_patch(make_row(commit))
    assert word in error.value.reason
    assert error.value.reason.startswith("dataset: r2e__aiohttp-")
    assert "\n" not in error.value.reason
