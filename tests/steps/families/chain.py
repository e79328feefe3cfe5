"""Images with a small repository, and runs of the one row of a dataset through the whole chain on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.steps.families.git_trees import run_git
from tests.workflows.command import swe_argo

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")
BROKEN = "def answer():\n    return 41\n"
FIXED = "def answer():\n    return 42\n"


def make_testbed(folder: Path, image: str, files: Mapping[str, str] | None = None) -> Path:
    """Return the repository of an image, for backend local, with these files. Idempotent."""
    testbed = folder / "images" / image.replace("/", "__") / "testbed"
    testbed.mkdir(parents=True, exist_ok=True)
    run_git(testbed, "init", "-q", "-b", "main")
    write_files(testbed, files or {})
    return testbed


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def commit_all(testbed: Path, message: str) -> str:
    """Commit all files and return the commit's id."""
    run_git(testbed, "add", "-A")
    run_git(testbed, *IDENTITY, "commit", "-qm", message)
    return run_git(testbed, "rev-parse", "HEAD").decode().strip()


def diff_of(testbed: Path, files: Mapping[str, str]) -> str:
    """Return the diff of changed files and of uncommitted changes, which are undone."""
    write_files(testbed, files)
    run_git(testbed, "add", "-A")
    diff = run_git(testbed, "diff", "--cached", "-M").decode()
    run_git(testbed, "reset", "-q", "--hard")
    return diff


def write_rows(folder: Path, row: dict[str, Any]) -> None:
    """Write the dataset of one row."""
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")


def run_chain(lab: Path, store: Path, *more: str) -> Path:
    """Run the one row and return the folder of its unit."""
    result = swe_argo(
        *("run", "--dataset", str(lab / "rows.jsonl"), "--local-images", str(lab / "images")),
        *("--store", str(store), "--run-id", "r", *more),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (unit,) = (store / "runs" / "r" / "units").glob("*/1")
    return unit


def read_record(unit: Path, name: str) -> dict[str, Any]:
    """Return a JSON file of a unit."""
    return dict(json.loads((unit / name).read_text()))
