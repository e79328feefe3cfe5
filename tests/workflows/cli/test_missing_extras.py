"""Commands that need a package of an extra that is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from swe_argo.steps.errors import EXIT_CONFIG, EXTRAS
from tests.paths import ROOT

WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from swe_argo.workflows.cli.main import main
main()
"""
MODEL = ("--model", "openai/m", "--base-url", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("openai", ("run", "--agent", "r2egym", *MODEL, "--k", "1")),
        ("boto3", ("run", "--store", "s3://bucket/prefix", "--k", "1")),
        ("boto3", ("runs", "--store", "s3://bucket/prefix")),
        ("docker", ("run", "--backend", "docker", "--k", "1")),
        ("kubernetes", ("submit", "--k", "1")),
        ("uvicorn", ("view", "results")),
        ("tinker", ("proxy", "--base-model", "m")),
    ],
)
def test_command_names_missing_extra(package: str, command: tuple[str, ...], tmp_path: Path) -> None:
    environment = os.environ | {"SWE_ARGO_HOME": str(tmp_path / "home"), "TINKER_API_KEY": "k"}
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *command],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == EXIT_CONFIG, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.endswith(f"pip install 'swe-argo[{EXTRAS[package]}]', or in a checkout: make setup")


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()
