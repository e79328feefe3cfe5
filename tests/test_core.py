"""Core and extensions: no core module imports an extension, and the core works where none is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

import swe_argo.steps
from swe_argo.steps.contracts.registry import EXTENSIONS

PARTS = (
    "steps.agents.gateway",
    "steps.agents.program",
    "steps.agents.resume.program",
    "steps.bundles",
    "steps.gateway",
    "steps.learn",
    "steps.plan_round",
    "steps.plan_training",
    "steps.planning.program",
    "steps.proxy",
    "steps.reports.training",
    "steps.sandbox.ags",
    "steps.sandbox.e2b",
    "steps.sandbox.egress.relay",
    "steps.sandbox.envd",
    "steps.sandbox.gateway_job",
    "steps.serving",
    "steps.training",
    "workflows.argo.training",
    *(f"workflows.cli.{name}" for name in ("agents", "ags", "export_verl", "templates", "train", "view")),
    *(f"workflows.local.{name}" for name in ("learning", "training", "training_processes")),
    "workflows.rollouts",
    "workflows.templates.train",
    "workflows.terminal.training_lines",
    "workflows.verifiers",
    "workflows.verl",
    "workflows.view",
)
"""The modules and packages of extensions, without ``swe_argo.``."""


def is_extension(module: str) -> bool:
    name = module.removeprefix("swe_argo.")
    return any(name == part or name.startswith(f"{part}.") for part in PARTS)


def test_core_imports_no_extension() -> None:
    graph = grimp.build_graph("swe_argo", exclude_type_checking_imports=True)
    assert {part for part in PARTS if f"swe_argo.{part}" not in graph.modules} == set()
    core = {module for module in graph.modules if not is_extension(module)}
    edges = [(module, imported) for module in core for imported in graph.find_modules_directly_imported_by(module)]
    assert [edge for edge in edges if is_extension(edge[1])] == []
    assert {module for module in EXTENSIONS.values() if not is_extension(module)} == set()


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package without its extensions."""
    folder = tmp_path_factory.mktemp("core")
    package = Path(swe_argo.steps.__file__).parents[1]
    shutil.copytree(package, folder / "swe_argo", ignore=shutil.ignore_patterns("__pycache__"))
    for part in PARTS:
        place = folder / "swe_argo" / part.replace(".", "/")
        shutil.rmtree(place) if place.is_dir() else place.with_suffix(".py").unlink()
    return folder


def test_core_evaluates_without_extensions(core: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(core)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "swe_argo.workflows.cli.main", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    chosen = ("-d", "mini", "--instance-ids", "mini__slugkit-1", "--backend", "local", "-o", "store")
    result = run("run", "--run-id", "one", "--agent", "gold", *chosen)
    assert (result.returncode, result.stdout.splitlines()[-1][:28]) == (0, "resolved 1/1, infra 0, repor"), (
        result.stderr
    )
    assert run("show", "one", "-o", "store").returncode == 0
    refused = run("run", "--run-id", "two", "--agent", "claude-code", "--model", "openai/x", *chosen)
    assert refused.returncode == 64
    assert "this installation of swe-argo has no swe_argo.steps.planning.program" in refused.stderr + refused.stdout
