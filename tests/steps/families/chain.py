"""Rows of a family with one small image of it, for runs through the whole chain on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.steps.families.git_trees import run_git
from tests.workflows.command import swe_argo

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")
BROKEN = "def answer():\n    return 41\n"
FIXED = "def answer():\n    return 42\n"


def make_testbed(folder: Path, image: str) -> Path:
    """An empty repository where backend local looks for the image."""
    testbed = folder / "images" / image.replace("/", "__") / "testbed"
    testbed.mkdir(parents=True)
    run_git(testbed, "init", "-q", "-b", "main")
    return testbed


def commit_all(testbed: Path, message: str) -> str:
    """Everything there is, as a commit; its id."""
    run_git(testbed, "add", "-A")
    run_git(testbed, *IDENTITY, "commit", "-qm", message)
    return run_git(testbed, "rev-parse", "HEAD").decode().strip()


def write_rows(folder: Path, row: dict[str, Any]) -> None:
    """The dataset of one row."""
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")


def run_chain(lab: Path, store: Path, *more: str) -> Path:
    """Run the one row; the folder of its unit."""
    result = swe_argo(
        *("run", "--dataset", str(lab / "rows.jsonl"), "--local-images", str(lab / "images")),
        *("--store", str(store), "--run-id", "r", *more),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (unit,) = (store / "runs" / "r" / "units").glob("*/1")
    return unit


def read_record(unit: Path, name: str) -> dict[str, Any]:
    """A JSON file of a unit."""
    return dict(json.loads((unit / name).read_text()))
