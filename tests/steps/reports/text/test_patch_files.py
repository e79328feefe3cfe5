from __future__ import annotations

from swe_argo.steps.reports.text.patch_files import PatchFile, patch_files

GIT = b"""diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,4 +1,4 @@ def f():
 one
--- a/looks like a head
+++ b/looks like a head
 two
 three
@@ -10 +10,2 @@
-x
+y
+z
\\ No newline at end of file
diff --git a/old name.py b/new name.py
similarity index 100%
rename from old name.py
rename to new name.py
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-b
"""


def test_patch_files_counts_lines() -> None:
    assert patch_files(GIT) == [PatchFile("a.py", 3, 2), PatchFile("new name.py", 0, 0), PatchFile("gone.py", 0, 2)]


def test_patch_files_reads_plain_diffs() -> None:
    plain = b"--- a/x.py\t2026\n+++ b/x.py\t2026\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/y.py\n@@ -0,0 +1 @@\n+c\n"
    assert patch_files(plain) == [PatchFile("x.py", 1, 1), PatchFile("y.py", 1, 0)]


def test_hostile_file_name_is_escaped() -> None:
    assert patch_files(b"") == []
    assert patch_files(b"hello\n+world\n") == []
    [file] = patch_files(b"diff --git a/\x1b[31m b/\x1b[31m" + b"x" * 1000)
    assert file.name.startswith("␛[31m")
    assert file.name.endswith("more characters")
