"""What is added to an image of verl's, asked of the environment of the tests in its place."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.paths import ROOT

IMAGES = ROOT / "images"


@pytest.fixture
def files(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Requirements and constraints."""
    lock = tmp_path / "some.lock"
    lock.write_text(
        "not-in-here==1.5 \\\n    --hash=sha256:ab\nnumpy==1.0 \\\n    --hash=sha256:cd\npydantic==1.0 \\\n"
    )
    outputs = [tmp_path / "needed", tmp_path / "kept"]
    words = [IMAGES / "verl_packages.py", ROOT / "pyproject.toml", lock, *outputs]
    subprocess.run([sys.executable, *words], check=True, timeout=60)
    needed, kept = (each.read_text().splitlines() for each in outputs)
    return needed, kept


def test_everything_a_sandbox_may_need_is_asked_for_but_what_the_recipe_installs(
    files: tuple[list[str], list[str]],
) -> None:
    names = {name.split(">")[0] for name in files[0]}
    assert {"pydantic", "docker", "kubernetes", "e2b", "boto3", "datasets"} <= names
    assert not any(name.startswith("swebench") for name in files[0])
    assert '"swebench==' in (ROOT / "pyproject.toml").read_text()  # the recipe reads it there


def test_what_was_built_for_each_other_stays_and_what_is_missing_comes_as_locked(
    files: tuple[list[str], list[str]],
) -> None:
    kept = files[1]
    assert f"numpy=={version('numpy')}" in kept
    assert "not-in-here==1.5" in kept
    assert not any(pin.startswith("pydantic==") for pin in kept)  # it is there, and may go up


def test_the_recipe_gets_the_files_that_it_copies() -> None:
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    copied = "images/steps.lock", "images/verl_packages.py"
    recipe = (IMAGES / "verl.Dockerfile").read_text()
    assert all(name in recipe and f"!{name}" in let_in for name in copied)
