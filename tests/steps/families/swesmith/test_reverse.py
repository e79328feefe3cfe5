"""A reversed diff takes back what the diff did: by git, over any two small trees and over the real bugs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.families.swesmith.reverse import reverse_patch
from tests.paths import needs_data
from tests.steps.families.git_trees import diff_trees, differing_trees, read_tree, run_git, write_tree
from tests.steps.families.swesmith.make_rows import REAL


@settings(max_examples=25, deadline=None)
@given(differing_trees(), st.sampled_from(["--no-renames", "-M", "-U0", "-U10"]))
def test_reverse_restores_the_tree(tmp_path_factory: pytest.TempPathFactory, trees: Any, option: str) -> None:
    """New, deleted, renamed and empty files, changed modes, missing newlines, lines that look like headers.

    Git itself does not find back by `-R` where two lines differ by the newline at the end alone, without context.
    """
    before, after = trees
    folder = tmp_path_factory.mktemp("bug")
    diff = diff_trees(folder, before, after, option)
    reverse = reverse_patch(diff.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    words = ["apply", *(["--unidiff-zero"] if option == "-U0" else [])]
    write_tree(folder, after)
    run_git(folder, *words, "-R", stdin=diff)
    by_git = read_tree(folder)
    assert by_git == before or option == "-U0"
    write_tree(folder, after)
    run_git(folder, *words, stdin=reverse)
    assert read_tree(folder) == by_git
    again = reverse_patch(reverse.decode("utf-8", "surrogateescape"))
    assert again.encode("utf-8", "surrogateescape") == diff


@needs_data
def test_real_bugs_reverse_and_back() -> None:
    bugs = sorted(REAL.glob("*/*/bug.diff"))
    assert len(bugs) == 3
    for bug in bugs:
        text = bug.read_text()
        assert reverse_patch(reverse_patch(text)) == text
        assert reverse_patch(text).count("\n-") == text.count("\n+")


@pytest.mark.parametrize(
    ("patch", "reverse"),
    [
        (
            "--- a/x\n+++ b/x\n@@ -1 +1,2 @@ def f():\n-1\n+2\n+3\n",
            "--- a/x\n+++ b/x\n@@ -1,2 +1 @@ def f():\n-2\n-3\n+1\n",
        ),
        ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+1\n", "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"),
        ("words\n--- a/x y\t\n+++ b/x y\t\n@@ -1 +1 @@\n-1\n+2", "--- a/x y\t\n+++ b/x y\t\n@@ -1 +1 @@\n-2\n+1\n"),
        (
            "--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n\n--- x\n-+++ y\n+z\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-1\n+2\n",
            "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n\n-z\n+-- x\n++++ y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-2\n+1\n",
        ),
        (
            'diff --git "a/\\303\\274" b/u\nsimilarity index 100%\nrename from "\\303\\274"\nrename to u\n',
            'diff --git a/u "b/\\303\\274"\nsimilarity index 100%\nrename from u\nrename to "\\303\\274"\n',
        ),
    ],
    ids=["plain", "new file", "name with a blank, no last newline", "lines like headers, an empty line", "quoted name"],
)
def test_unusual_diffs_are_reversed(patch: str, reverse: str) -> None:
    assert reverse_patch(patch) == reverse


@pytest.mark.parametrize(
    ("patch", "word"),
    [
        ("", "names no file"),
        ("words\n", "names no file"),
        ("@@ -1 +1 @@\n-1\n+2\n", "belongs to no file"),
        ("--- a/x\n@@ -1 +1 @@\n-1\n+2\n", "belongs to no file"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-1\n+2\n", "is truncated"),
        ("--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-1\n-2\n+2\n+2\n", "longer than its header"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\nwords\n", "'words' is invalid in a hunk"),
        ("diff --git a/x b/x\nold mode 100644\n", "without a line 'new mode'"),
        ("diff --git a/x b/y\ncopy from x\ncopy to y\n", "copies a file"),
        ("diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\n", "binary file"),
        ("diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n", "binary file"),
    ],
)
def test_irreversible_diff_is_named(patch: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        reverse_patch(patch)


@given(
    st.text() | st.lists(st.sampled_from(["--- a/x", "+++ b/x", "@@ -1 +1 @@", "-1", "+1", "\\ No", ""])).map("\n".join)
)
def test_any_text_is_reversed_or_refused(text: str) -> None:
    try:
        reverse = reverse_patch(text)
    except ValueError:
        return
    assert reverse_patch(reverse)
