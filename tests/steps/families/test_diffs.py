"""Diffs: the gold patch of R2E-Gym, and the reversed bug of SWE-smith, are as git writes and takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.diffs import reverse_patch
from swe_argo.steps.families.r2e import gold_patch
from swe_argo.steps.families.r2e_commits import parse_commit
from tests.paths import DATA, needs_data
from tests.steps.families.git_trees import Tree, diff_trees, differing_trees, read_tree, run_git, write_tree
from tests.steps.families.sample_rows import r2e


def gold_of(commit: Any) -> str:
    return gold_patch(r2e(parsed_commit_content=commit))


def decode(diff: bytes) -> str:
    return diff.decode("utf-8", "surrogateescape")


def encode(diff: str) -> bytes:
    return diff.encode("utf-8", "surrogateescape")


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


@settings(max_examples=25, deadline=None)
@given(differing_trees(), st.sampled_from(["--no-renames", "-M", "-U0", "-U10"]))
def test_diffs_round_trip(tmp_path_factory: pytest.TempPathFactory, trees: tuple[Tree, Tree], option: str) -> None:
    """New, deleted, renamed and empty files, changed modes, missing newlines, lines that look like headers.

    Git itself cannot revert by `-R` if two lines differ by the newline at the end alone, without context.
    """
    before, after = trees
    folder = tmp_path_factory.mktemp("commit")
    diff = diff_trees(folder, before, after, option)
    assert encode(gold_of(json.dumps(parse_commit(decode(diff)), indent=4))) == diff
    reverse = reverse_patch(decode(diff))
    assert encode(reverse_patch(reverse)) == diff
    words = ["apply", *(["--unidiff-zero"] if option == "-U0" else [])]
    run_git(folder, *words, stdin=diff)
    assert read_tree(folder) == after
    run_git(folder, *words, "-R", stdin=diff)
    reverted = read_tree(folder)
    assert reverted == before or option == "-U0"
    write_tree(folder, after)
    run_git(folder, *words, stdin=encode(reverse))
    assert read_tree(folder) == reverted


@pytest.mark.parametrize(
    "diff",
    [
        # git's output for a name with a blank, and a name with an umlaut.
        "diff --git a/a b.py b/a b.py\nindex 1..2 100644\n--- a/a b.py\t\n+++ b/a b.py\t\n"
        "@@ -1 +1 @@ def f():\n-x\n+y\n",
        'diff --git "a/\\303\\274.py" "b/\\303\\274.py"\nnew file mode 100644\nindex 0000000..e69de29\n',
    ],
)
def test_gold_patch_quotes_names_as_git(diff: str) -> None:
    assert gold_of(parse_commit(diff)) == diff


def test_gold_patch_has_python_sources() -> None:
    part = "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-x\n+y\n"
    paths = ("a.py", "a.rst", "tests/a.py", "test_a.py", "b.py")
    commit = parse_commit("".join(part.format(path) for path in paths))
    assert gold_of(commit) == part.format("a.py") + part.format("b.py")


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
        gold_of(commit)
    assert word in error.value.reason
    assert error.value.reason.startswith("dataset: r2e__aiohttp-")
    assert "\n" not in error.value.reason


@needs_data
def test_real_bugs_reverse_and_back() -> None:
    bugs = [path.read_text() for path in (DATA / "swesmith").glob("*/*/bug.diff")]
    assert len(bugs) == 3
    for bug in bugs:
        assert reverse_patch(reverse_patch(bug)) == bug
        assert reverse_patch(bug).count("\n-") == bug.count("\n+")


A, ONE = "--- a/x\n+++ b/x\n", "@@ -1 +1 @@\n-1\n+2\n"
REVERSED = {
    "plain": (f"{A}@@ -1 +1,2 @@ def f():\n-1\n+2\n+3\n", f"{A}@@ -1,2 +1 @@ def f():\n-2\n-3\n+1\n"),
    "new file": ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+1\n", "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"),
    "name with a blank, no last newline": (
        "words\n--- a/x y\t\n+++ b/x y\t\n@@ -1 +1 @@\n-1\n+2",
        "--- a/x y\t\n+++ b/x y\t\n@@ -1 +1 @@\n-2\n+1\n",
    ),
    "lines like headers, an empty line": (
        f"{A}@@ -1,3 +1,2 @@\n\n--- x\n-+++ y\n+z\n--- a/y\n+++ b/y\n{ONE}",
        f"{A}@@ -1,2 +1,3 @@\n\n-z\n+-- x\n++++ y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-2\n+1\n",
    ),
    "quoted name": (
        'diff --git "a/\\303\\274" b/u\nsimilarity index 100%\nrename from "\\303\\274"\nrename to u\n',
        'diff --git a/u "b/\\303\\274"\nsimilarity index 100%\nrename from u\nrename to "\\303\\274"\n',
    ),
}


@pytest.mark.parametrize("name", REVERSED)
def test_unusual_diffs_are_reversed(name: str) -> None:
    patch, reverse = REVERSED[name]
    assert reverse_patch(patch) == reverse


@pytest.mark.parametrize(
    ("patch", "word"),
    [
        ("", "names no file"),
        ("words\n", "names no file"),
        (ONE, "belongs to no file"),
        (f"--- a/x\n{ONE}", "belongs to no file"),
        (f"{A}@@ -1,2 +1 @@\n-1\n+2\n", "is truncated"),
        (f"{A}@@ -1 +1,2 @@\n-1\n-2\n+2\n+2\n", "longer than its header"),
        (f"{A}@@ -1 +1 @@\nwords\n", "'words' is invalid in a hunk"),
        ("diff --git a/x b/x\nold mode 100644\n", "without a line 'new mode'"),
        ("diff --git a/x b/y\ncopy from x\ncopy to y\n", "copies a file"),
        ("diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\n", "binary file"),
        ("diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n", "binary file"),
    ],
)
def test_irreversible_diff_is_named(patch: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        reverse_patch(patch)


LINES = st.sampled_from(["--- a/x", "+++ b/x", "@@ -1 +1 @@", "-1", "+1", "\\ No", ""])


@given(st.text() | st.lists(LINES).map("\n".join))
def test_any_text_is_reversed_or_refused(text: str) -> None:
    try:
        reverse = reverse_patch(text)
    except ValueError:
        return
    assert reverse_patch(reverse)
