"""The wheel is whole: what it installs runs an evaluation, and brings the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.steps.agents.gate.toolchain import needs_go

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, its dependencies aside."""
    if shutil.which("go"):
        subprocess.run([sys.executable, "-m", "steps.agents.gate.binary"], cwd=ROOT, check=True)
    folder = tmp_path_factory.mktemp("wheel")
    command = ["pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", *command, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``swe-argo`` of the wheel, from a folder that is not the checkout."""
    environment = os.environ | {"PYTHONPATH": str(installed), "SWE_ARGO_HOME": str(cwd / "home")}
    command = [sys.executable, "-P", "-m", "workflows.cli.main", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_it_evaluates_the_bundled_dataset(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "run", "--k", "1", "--run-id", "first")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results/runs/first/report/report.html").is_file()


def test_it_has_the_chart_and_says_where(installed: Path, tmp_path: Path) -> None:
    chart = Path(run(installed, tmp_path, "chart").stdout.strip())
    assert chart.is_relative_to(installed)
    assert (chart / "Chart.yaml").read_bytes() == (ROOT / "charts/swe-argo/Chart.yaml").read_bytes()
    assert (chart / "argo/swe-argo-evaluate.yaml").is_file()


@needs_go
def test_it_has_the_gate_for_agent_programs(installed: Path, tmp_path: Path) -> None:
    code = (
        "from steps.agents.gate.binary import find_gate, is_shipped; assert is_shipped(); print(find_gate('arm64')[:4])"
    )
    environment = os.environ | {"PYTHONPATH": str(installed), "SWE_ARGO_HOME": "/none", "PATH": "/none"}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "b'\\x7fELF'\n", done.stderr


def test_it_has_the_names_that_programs_import(installed: Path) -> None:
    assert {"swe_argo", "swe_argo_verifiers"} <= {file.parent.name for file in installed.glob("*/__init__.py")}


def test_it_is_typed(installed: Path) -> None:
    assert (installed / "steps/py.typed").is_file()
    assert (installed / "workflows/py.typed").is_file()
