"""The run files that come with the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.workflows.cli import spec_sources
from tests.paths import ROOT

FILES = sorted(set((ROOT / "templates" / "runs").glob("*.toml")) - {ROOT / "templates" / "runs" / "grpo.toml"})
"""That one is a training's: tests/steps/training."""


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_a_run_file_is_a_spec(file: Path) -> None:
    assert spec_sources.read(file, {}, []).run_id


def test_the_guide_of_ags_is_followed_and_its_variables_choose_the_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("START_IDX", "20")
    monkeypatch.setenv("K", "5")
    spec = spec_sources.read(ROOT / "templates" / "runs" / "ags.toml", {}, [])
    agent, select = spec.agent, spec.select
    assert (spec.sandbox.backend, agent.name, agent.use_fn_calling) == ("ags", "r2egym", "false")
    assert (agent.max_steps, agent.max_steps_absolute, spec.llm.temperature) == (60, 100, 1.0)
    assert (spec.grading.timeout_s, select.start_idx, select.k) == (300, 20, 5)
    assert agent.timeout_s + 600 <= spec.sandbox.ags.longest_life_s
