"""A sandbox as agents get it, and the git that builds repositories for it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.sandbox.local.sandbox import LocalSandbox

DATE = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Box:
    """A sandbox of backend local. ``root`` is this host's name of the sandbox's /."""

    sandbox: LocalSandbox
    root: Path

    @property
    def testbed(self) -> Path:
        return self.root / "testbed"


def image(folder: Path) -> None:
    """Make a repository as images have it: a base commit, a set-up commit on top, tags on its history."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    commit(folder, "first", {"a.py": "a = 1\n"})
    git(folder, "tag", "v0.9")
    commit(folder, "base", {"a.py": "a = 2\n", "b/c.py": "c = 1\n"})
    git(folder, "tag", "-a", "v1.0", "-m", "release")
    commit(folder, "set-up", {"setup.cfg": "[x]\n"}, date="2026-01-01T00:00:00Z")


def git(folder: Path, *arguments: str, date: str = DATE, stdin: bytes | None = None) -> str:
    """Run git in ``folder`` without the user's configuration; return its output without the last newline."""
    options = ["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"]
    return _run(["git", *options, *arguments], folder, date, stdin or b"")


def shell(folder: Path, script: str) -> None:
    """Run a bash script in ``folder`` with the same git."""
    _run(["bash", "-ec", script], folder, DATE, b"")


def _run(command: list[str], folder: Path, date: str, stdin: bytes) -> str:
    person = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _person(date).items()}
    environment = os.environ | {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"} | person
    result = subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, check=False)
    if result.returncode:
        raise AssertionError(f"{' '.join(command)}: {result.stderr.decode(errors='replace')}")
    return result.stdout.decode(errors="surrogateescape").rstrip("\n")


def _person(date: str) -> dict[str, str]:
    return {"NAME": "a", "EMAIL": "a@example.org", "DATE": date}


def commit(folder: Path, message: str, files: dict[str, str], date: str = DATE) -> str:
    """Write ``files`` and commit everything; return the commit's name."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message, date=date)
    return git(folder, "rev-parse", "HEAD")
