"""Small trees of files, any two of them, and what git says is between them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TypeAlias

from hypothesis import strategies as st

Tree: TypeAlias = dict[str, tuple[bytes, bool]]
"""path -> content and whether it is executable."""

_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}
_PATHS = ("a.py", "pkg/b.py", "pkg/c d.py", "pkg/deep/e.py")
_LINES = st.sampled_from(
    [b"x", b"y", b"", b"-", b"+++ a/b.py", b"--- x", b"@@ -1 +1 @@", b"\\ No", b" x", b"z\r", b"\t"]
)
_CONTENTS = st.builds(
    lambda lines, end: b"\n".join(lines) + (b"\n" if end and lines else b""),
    st.lists(_LINES, max_size=14),
    st.booleans(),
)
_TREES = st.dictionaries(st.sampled_from(_PATHS), st.tuples(_CONTENTS, st.booleans()), max_size=4)


def differing_trees() -> st.SearchStrategy[tuple[Tree, Tree]]:
    """A tree and what it is changed to."""
    return st.tuples(_TREES, _TREES).filter(lambda both: both[0] != both[1])


def run_git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """What a git command printed; raises CalledProcessError where it failed."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=True, env=_ENVIRONMENT).stdout


def write_tree(folder: Path, tree: Tree) -> None:
    """The files of a tree and no others, the repository aside."""
    for entry in folder.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path, (content, executable) in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        (folder / path).chmod(0o755 if executable else 0o644)


def read_tree(folder: Path) -> Tree:
    """The files below a folder, the repository aside."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): (path.read_bytes(), bool(path.stat().st_mode & 0o100)) for path in files}


def diff_trees(folder: Path, before: Tree, after: Tree, *options: str) -> bytes:
    """What ``git diff`` writes between the two; ``folder`` is a repository at ``before`` then."""
    run_git(folder, "init", "-q")
    write_tree(folder, after)
    run_git(folder, "add", "-A")
    target = run_git(folder, "write-tree").decode().strip()
    write_tree(folder, before)
    run_git(folder, "add", "-A")
    start = run_git(folder, "write-tree").decode().strip()
    return run_git(folder, "diff", "--no-color", "--text", *options, start, target)
