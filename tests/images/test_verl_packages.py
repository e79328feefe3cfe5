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
    required, pinned = (path.read_text().splitlines() for path in outputs)
    return required, pinned


def test_verl_packages_cover_sandboxes(files: tuple[list[str], list[str]]) -> None:
    names = {name.split(">")[0] for name in files[0]}
    assert {"pydantic", "docker", "kubernetes", "e2b", "boto3", "datasets"} <= names
    assert not any(name.startswith("swebench") for name in files[0])
    assert '"swebench==' in (ROOT / "pyproject.toml").read_text()  # the recipe reads it there


def test_verl_packages_keep_pins(files: tuple[list[str], list[str]]) -> None:
    pinned = files[1]
    assert f"numpy=={version('numpy')}" in pinned
    assert "not-in-here==1.5" in pinned
    assert not any(pin.startswith("pydantic==") for pin in pinned)  # it is there, and may go up


def test_verl_recipe_files_exist() -> None:
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    copied = "images/steps.lock", "images/verl_packages.py"
    recipe = (IMAGES / "verl.Dockerfile").read_text()
    assert all(name in recipe and f"!{name}" in let_in for name in copied)
