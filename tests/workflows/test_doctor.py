from __future__ import annotations

import tomllib
from pathlib import Path

from tests.workflows.command import swe_argo

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_every_extra_that_a_run_can_need_has_its_line() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    done = swe_argo("doctor", env={"KUBECONFIG": "/nonexistent"})
    said = {line.split("  ")[0].removeprefix("backend ") for line in done.stdout.splitlines()}
    assert set(extras) - {"run", "all", "dev"} <= said, done.stdout
    assert done.returncode == 0, done.stdout
