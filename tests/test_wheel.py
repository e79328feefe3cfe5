"""The wheel is whole: what it installs runs an evaluation, and brings the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.steps.agents.gate.toolchain import needs_go

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go"):
        subprocess.run([sys.executable, "-m", "swe_argo.steps.agents.gate.binary"], cwd=ROOT, check=True)
    folder = tmp_path_factory.mktemp("wheel")
    return build(ROOT, folder)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder into which the wheel was installed, its dependencies aside."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def build(source: Path, folder: Path) -> Path:
    """Build the wheel of a source tree or sdist into ``folder``."""
    command = ["pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", *command, "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``swe-argo`` of the wheel, from a folder that is not the checkout."""
    environment = os.environ | {"PYTHONPATH": str(installed), "SWE_ARGO_HOME": str(cwd / "home")}
    command = [sys.executable, "-P", "-m", "swe_argo.workflows.cli.main", *words]
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
    code = "from swe_argo.steps.agents.gate import binary as b; assert b.is_shipped(); print(b.find_gate('arm64')[:4])"
    environment = os.environ | {"PYTHONPATH": str(installed), "SWE_ARGO_HOME": "/none", "PATH": "/none"}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "b'\\x7fELF'\n", done.stderr


def test_wheel_owns_two_packages(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"swe_argo", "swe_argo_verifiers"}


def test_wheel_of_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert contents(build(sdist, tmp_path)) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """Return the checksum of every file in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("/RECORD")}


def test_wheel_lives_beside_llama_index_workflows(wheel: Path, tmp_path: Path) -> None:
    """Its package is called ``workflows``."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    peer = subprocess.run([*install, "llama-index-workflows"], capture_output=True, text=True, check=False)
    if peer.returncode:
        pytest.skip(f"no package index: {peer.stderr[-200:]}")
    subprocess.run([*install, wheel], check=True)
    code = """
from importlib.metadata import files
ours, theirs = ({*files(name)} for name in ("swe-argo", "llama-index-workflows"))
assert not ours & theirs, ours & theirs
import swe_argo.workflows.api.run
from workflows import Workflow
"""
    subprocess.run([python, "-c", code], check=True, cwd=tmp_path)
    subprocess.run([python, "-m", "pip", "check"], check=True, cwd=tmp_path)


def test_it_is_typed(installed: Path) -> None:
    assert (installed / "swe_argo/steps/py.typed").is_file()
    assert (installed / "swe_argo/workflows/py.typed").is_file()
