"""The wheel is complete: it runs an evaluation and contains the chart."""

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
from tests.steps.gateway.toolchain import needs_go

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("wheel"), needs_go]  # it is built in the checkout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder into which the wheel was installed, its dependencies aside."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def build_wheel(source: Path, folder: Path, **environment: str) -> Path:
    command = ["pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", *command, "--wheel-dir", folder, source], env=os.environ | environment, check=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def run(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``swe-argo`` of the wheel, from a folder that is not the checkout."""
    environment = os.environ | {"PYTHONPATH": str(installed), "SWE_ARGO_HOME": str(cwd / "home")}
    command = [sys.executable, "-P", "-m", "swe_argo.workflows.cli.main", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_wheel_evaluates_bundled_dataset(installed: Path, tmp_path: Path) -> None:
    result = run(installed, tmp_path, "run", "--k", "1", "--run-id", "first")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "results/runs/first/report/report.html").is_file()


def test_wheel_runs_bundled_run_file(installed: Path, tmp_path: Path) -> None:
    result = run(installed, tmp_path, "run", "verified.toml", "--print-spec")
    assert 'dataset = "verified"' in result.stdout, result.stderr


def test_wheel_contains_chart(installed: Path, tmp_path: Path) -> None:
    chart = Path(run(installed, tmp_path, "chart").stdout.strip())
    assert chart.is_relative_to(installed)
    assert (chart / "Chart.yaml").read_bytes() == (ROOT / "charts/swe-argo/Chart.yaml").read_bytes()
    assert (chart / "argo/swe-argo-evaluate.yaml").is_file()


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", 62), ("arm64", 183)])
def test_wheel_carries_the_model_gateway(installed: Path, tmp_path: Path, architecture: str, machine: int) -> None:
    """It is found without Go and a folder to keep it in; ELF files name their machine in bytes 18 and 19."""
    code = "import sys, swe_argo.steps.gateway.binary as b; print(b.find_gateway(sys.argv[1])[:20].hex())"
    environment = {"PYTHONPATH": str(installed), "SWE_ARGO_HOME": "/none", "PATH": "/none"}
    command = [sys.executable, "-P", "-c", code, architecture]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    header = bytes.fromhex(result.stdout)
    assert header[:4] == b"\x7fELF", result.stderr
    assert int.from_bytes(header[18:20], "little") == machine


def build_with(kind: str, folder: Path) -> list[str]:
    """Return the command that asks the build backend for a wheel or sdist of its folder."""
    return [sys.executable, "-c", f"from setuptools.build_meta import build_{kind} as build; build({str(folder)!r})"]


@pytest.fixture(scope="module")
def sdist(wheel: Path) -> Path:
    folder = wheel.parent / "sdist"
    subprocess.run(build_with("sdist", folder), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (file,) = folder.glob("*.tar.gz")
    return file


def test_sdist_builds_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    assert contents(build_wheel(sdist, tmp_path, PATH="/none")) == contents(wheel)


def test_build_names_missing_go(sdist: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(sdist, tmp_path)
    (source,) = tmp_path.iterdir()
    shutil.rmtree(source / "steps/gateway/built")
    result = subprocess.run(
        build_with("wheel", tmp_path),
        cwd=source,
        env=os.environ | {"PATH": "/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "install Go 1.24 or newer" in result.stderr


def test_wheel_owns_two_packages(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"swe_argo", "swe_argo_verifiers"}


def test_wheel_lives_beside_llama_index(wheel: Path, tmp_path: Path) -> None:
    """Its package is called ``workflows``."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
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


def test_wheel_is_typed(installed: Path) -> None:
    assert (installed / "swe_argo/steps/py.typed").is_file()
    assert (installed / "swe_argo/workflows/py.typed").is_file()
