"""The locks of a run and of the images: parts of requirements.lock, in the versions that the tests run with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.paths import ROOT

EXTRAS = ("s3", "hub", "kubernetes", "models", "mini-swe-agent", "e2b", "ags")


COMMAND_LINE = {"pytest"}
"""What is needed beside the steps alone; typer and rich are mini-swe-agent's, too."""


def pins(name: str) -> dict[str, set[str]]:
    """The pinned versions by project; several where the lock tells interpreters apart."""
    pinned: dict[str, set[str]] = {}
    for project, version in re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / name).read_text(), re.MULTILINE):
        pinned.setdefault(project, set()).add(version)
    return pinned


@pytest.mark.parametrize("lock", ["steps", "training"])
def test_image_locks_match_whole_lock(lock: str) -> None:
    everything, pinned = pins("requirements.lock"), pins(f"images/{lock}.lock")
    assert {name: versions for name, versions in pinned.items() if everything.get(name) != versions} == {}
    with_hashes = [entry for entry in entries(ROOT / "images" / f"{lock}.lock") if "--hash=sha256:" in entry]
    assert len(with_hashes) == sum(map(len, pinned.values()))


def test_steps_lock_covers_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(item for name in EXTRAS for item in project["optional-dependencies"][name]),
    ]
    names = {re.split(r"[^\w.-]", item)[0] for item in requirements}
    assert names - pins("images/steps.lock").keys() == COMMAND_LINE


def test_steps_lock_is_minimal() -> None:
    """But typer and rich: mini-swe-agent asks for them."""
    unwanted = {"docker", "hera", "hera-workflows", "pytest", "pip", "litellm", "textual"}
    assert pins("images/steps.lock").keys() & unwanted == set()


def test_training_lock_adds_to_steps_lock() -> None:
    """Its image stands on theirs."""
    steps, training = pins("images/steps.lock"), pins("images/training.lock")
    assert steps.keys() & training.keys() == set()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {re.split(r"[^\w.-]", requirement)[0] for requirement in extras["tinker"]} <= steps.keys() | training.keys()


def test_base_lock_is_part_of_whole_lock() -> None:
    whole, base = (set(entries(ROOT / name)) for name in ("requirements.lock", "base.lock"))
    assert base - whole == set()


def test_base_lock_covers_run() -> None:
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = file["project"], file["project"]["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["docker"], *extras["view"], *file["dependency-groups"]["build"]]
    assert {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements} <= pins("base.lock").keys()


def entries(lock: Path) -> list[str]:
    """Return the entries of a lock: a pin with its marker and hashes."""
    return re.split(r"^(?=\S)", lock.read_text(), flags=re.MULTILINE)
