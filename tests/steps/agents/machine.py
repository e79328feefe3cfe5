"""A sandbox as agents get it, and the git that builds repositories for it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.sandbox.local.sandbox import LocalSandbox


@dataclass(frozen=True)
class Box:
    """A sandbox of backend local and, for the test, what is in it. ``root`` is this host's name of the sandbox's /."""

    sandbox: LocalSandbox
    root: Path

    @property
    def testbed(self) -> Path:
        return self.root / "testbed"


def image(folder: Path) -> None:
    """A repository as images have it: a base commit, a set-up commit on top, tags on its history."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    commit(folder, "first", {"a.py": "a = 1\n"})
    git(folder, "tag", "v0.9")
    commit(folder, "base", {"a.py": "a = 2\n", "b/c.py": "c = 1\n"})
    git(folder, "tag", "-a", "v1.0", "-m", "release")
    commit(folder, "set-up", {"setup.cfg": "[x]\n"}, date="2026-01-01T00:00:00Z")


def git(folder: Path, *arguments: str, date: str = "2020-01-01T00:00:00Z", stdin: bytes | None = None) -> str:
    """Run git as nobody in particular at ``date``; its output without the last newline."""
    quiet = {
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
    }
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments]
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **quiet}, input=stdin or b"", capture_output=True, check=False
    )
    if result.returncode:
        raise AssertionError(f"git {' '.join(arguments)}: {result.stderr.decode(errors='replace')}")
    return result.stdout.decode(errors="surrogateescape").rstrip("\n")


def commit(folder: Path, message: str, files: dict[str, str], date: str = "2020-01-01T00:00:00Z") -> str:
    """Write ``files`` and commit everything; the commit's name."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message, date=date)
    return git(folder, "rev-parse", "HEAD")
