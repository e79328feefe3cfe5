"""Optional packages: ``swe-argo doctor``, and commands whose extra is not installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from swe_argo.steps.errors import EXIT_CONFIG, EXTRAS
from tests.http_server import Handler, serve
from tests.paths import ROOT
from tests.workflows.command import call

OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class _Hub(Handler):
    """A hub that answers, if only that it has no such page."""

    def respond(self) -> None:
        self.answer(404)


def test_doctor_queries_extras_and_hub() -> None:
    env = {"KUBECONFIG": "/nonexistent", "COLUMNS": "200"}
    with serve(_Hub) as address:
        reachable = call("doctor", env=env | {"HF_ENDPOINT": address})
    away = call("doctor", env=env | {"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert re.search(r"^hub +yes ", reachable.stdout, re.MULTILINE), reachable.stdout
    assert re.search(r"^hub +no +http://127\.0\.0\.1:9 does not answer", away.stdout, re.MULTILINE), away.stdout
    names = {line.split("  ")[0].removeprefix("backend ") for line in away.stdout.splitlines()}
    assert set(OPTIONAL) - {"run", "all", "dev", "verifiers"} <= names, away.stdout  # verifiers imports swe-argo
    assert away.returncode == 0


WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from swe_argo.workflows.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("openai", "run --agent r2egym --model openai/m --base-url http://127.0.0.1:9/v1 --k 1"),
        ("boto3", "runs --store s3://bucket/prefix"),
        ("docker", "run --backend docker --k 1"),
        ("kubernetes", "submit --k 1"),
        ("uvicorn", "view results"),
        ("tinker", "proxy --base-model m"),
    ],
)
def test_command_names_missing_extra(package: str, command: str, tmp_path: Path) -> None:
    env = os.environ | {"SWE_ARGO_HOME": str(tmp_path / "home"), "TINKER_API_KEY": "k"}
    words = [sys.executable, "-c", WITHOUT, package, *command.split()]
    result = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == EXIT_CONFIG, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.endswith(f"pip install 'swe-argo[{EXTRAS[package]}]', or in a checkout: make setup")


def test_extras_are_those_of_the_project() -> None:
    assert set(EXTRAS.values()) <= OPTIONAL.keys()
