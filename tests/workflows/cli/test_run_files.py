"""The run files that come with the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.cli.train import read_spec as read_training
from tests.paths import ROOT

FILES = sorted(set((ROOT / "templates" / "runs").glob("*.toml")) - {ROOT / "templates" / "runs" / "grpo.toml"})
"""That one is a training's: tests/steps/training."""


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_bundled_run_file_is_valid_spec(file: Path) -> None:
    assert spec_sources.read(file, {}, []).run_id


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_local_run_file_comes_first(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bundled = spec_sources.read(Path(file.name), {"run_id": "r"}, [])
    assert bundled == spec_sources.read(file, {"run_id": "r"}, [])
    Path(file.name).write_text('run_id = "mine"\n')
    assert spec_sources.read(Path(file.name), {}, []).run_id == "mine"


@pytest.mark.parametrize("name", ["none.toml", "runs/verified.toml", "./none/grpo.toml"])
def test_missing_run_file_lists_bundled(name: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        spec_sources.read(Path(name), {}, [])
    bundled = "ags.toml, grpo.toml, model.toml, verified.toml"
    assert str(refusal.value) == f"there is no file {Path(name)}; bundled files, by name alone: {bundled}"


def test_bundled_training_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_training(Path("grpo.toml"), [], "mine", 3, None).steps == 3


def test_ags_run_file_reads_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("START_IDX", "20")
    monkeypatch.setenv("K", "5")
    spec = spec_sources.read(ROOT / "templates" / "runs" / "ags.toml", {}, [])
    agent, select = spec.agent, spec.select
    assert (spec.sandbox.backend, agent.name, agent.use_fn_calling) == ("ags", "r2egym", "false")
    assert (agent.max_steps, agent.max_steps_absolute, spec.llm.temperature) == (60, 100, 1.0)
    assert (spec.grading.timeout_s, select.start_idx, select.k) == (300, 20, 5)
    assert agent.timeout_s + 600 <= spec.sandbox.ags.longest_life_s
