"""The test patch with changed lines, against real git."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from swe_argo.steps.grading.official_patch import OfficialPatch, PatchFormError, content_of, lines_of
from tests.steps.grading.conftest import git

BASE = "import os\n\n\nclass A:\n    def one(self):\n        pass\n\n" + "".join(
    f"    def test_{n}(self):\n        assert {n} == {n}\n\n" for n in range(30)
)
CHANGES = {
    "in the middle": BASE.replace("assert 7 == 7", "assert 7 == 7\n        assert 8"),
    "at both ends": "# first\n" + BASE + "# last\n",
    "lines that go": BASE.replace("import os\n\n", "").replace("assert 20 == 20", "pass"),
    "far apart": BASE.replace("assert 3 ==", "assert 3.0 ==").replace("assert 28 ==", "assert 28.0 =="),
    "end without a newline": BASE + "# end",
    "an end that was without one": BASE + "x = 1\n",
    "carriage returns": BASE.replace("assert 9 == 9\n", "assert 9 == 9\r\n"),
    "other line ends": BASE.replace("assert 9 == 9\n", "assert '\x0c\u2028' != 9\n"),
}


def script(patch: str) -> list[str]:
    return ["git checkout 0 t.py", "git apply -v - <<'EOF_0123456789ab'", *patch.split("\n"), "EOF_0123456789ab", "end"]


@pytest.mark.parametrize("name", CHANGES)
def test_git_applies_changed_lines(tmp_path: Path, name: str) -> None:
    before = BASE + "x = 1" if name == "an end that was without one" else BASE
    file = tmp_path / "t.py"
    git(tmp_path, "init", "-q")
    file.write_text(before, newline="")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    file.write_text(CHANGES[name], newline="")
    patch = subprocess.run(["git", "diff"], cwd=tmp_path, check=True, capture_output=True).stdout.decode()
    git(tmp_path, "checkout", "-q", "--", ".")
    official = OfficialPatch.of(script(patch))
    (patch_file,) = official.files()
    assert content_of(patch_file.edits(before)) == CHANGES[name]
    # Unchanged: the patch as git wrote it, blob names, headings and marks of missing newlines included.
    assert official.script([patch_file.with_text(before, CHANGES[name])]) == script(patch)
    draw = random.Random(name)
    for _ in range(25):
        lines = lines_of(CHANGES[name])
        for _ in range(draw.randint(1, 3)):
            number = draw.randrange(len(lines))
            lines[number] = f"# {draw.random()}{lines[number][-1:]}"
        expected = "".join(lines)
        changed = OfficialPatch.of(official.script([patch_file.with_text(before, expected)]))
        text = "\n".join(changed.lines[changed.begin : changed.end]) + "\n"
        subprocess.run(["git", "apply", "--check", "-"], cwd=tmp_path, input=text.encode(), check=True)
        subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text.encode(), check=True)
        assert file.read_bytes().decode() == expected
        assert git(tmp_path, "hash-object", "t.py").startswith(text.split("index ")[1].split("..")[1].split(" ")[0])
        git(tmp_path, "checkout", "-q", "--", ".")


def test_hunk_offset_matches_git_apply() -> None:
    """Some official patches name lines that are some off: git says that the hunk succeeded at an offset."""
    patch = "diff --git a/t.py b/t.py\n--- a/t.py\n+++ b/t.py\n@@ -2,2 +2,3 @@\n b\n+new\n c\n"
    (patch_file,) = OfficialPatch.of(script(patch)).files()
    assert content_of(patch_file.edits("a\nx\ny\nb\nc\n")) == "a\nx\ny\nb\nnew\nc\n"


def test_other_file_is_refused() -> None:
    patch = "diff --git a/t.py b/t.py\n--- a/t.py\n+++ b/t.py\n@@ -1,2 +1,3 @@\n b\n+new\n c\n"
    (patch_file,) = OfficialPatch.of(script(patch)).files()
    with pytest.raises(PatchFormError, match="does not fit"):
        patch_file.edits("other\nlines\n")
    with pytest.raises(PatchFormError, match="another number of lines"):
        patch_file.with_text("b\nc\n", "b\nnew\nc\nother\n")


def test_only_new_text_files_are_read() -> None:
    new = "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n"
    gone = "diff --git a/g.py b/g.py\ndeleted file mode 100644\n--- a/g.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    binary = "diff --git a/b.png b/b.png\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n"
    official = OfficialPatch.of(script(new + gone + binary))
    assert [(file.path, file.before) for file in official.files()] == [("n.py", None)]
    assert official.script([]) == official.lines
    (patch_file,) = official.files()
    assert "+y" in official.script([patch_file.with_text("", "y\n")])


@pytest.mark.parametrize("lines", [["true"], script("x") + script("y"), script("x")[:-2]])
def test_script_needs_one_test_patch(lines: list[str]) -> None:
    with pytest.raises(PatchFormError):
        OfficialPatch.of(lines)
