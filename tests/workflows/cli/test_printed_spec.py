"""A spec printed as TOML is the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.cli.printed_spec import spec_toml
from tests.paths import ROOT
from tests.workflows.command import swe_argo

EXAMPLES = sorted({*(ROOT / "templates" / "runs").glob("*.toml")} - {ROOT / "templates" / "runs" / "grpo.toml"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_printed_examples_round_trip(path: Path, tmp_path: Path) -> None:
    request = spec_sources.read_request(path, {}, [])
    (file := tmp_path / "run.toml").write_text(spec_toml(request))
    assert spec_sources.read(file, {}, []) == request.spec


def test_odd_values_round_trip(tmp_path: Path) -> None:
    sets = ['agent.model="a\\"b\\\\c\\u007f\\n漢\\U0001f600"', "select.repos=['a/b', 'c/d']", "llm.temperature=0.7"]
    request = spec_sources.read_request(None, {"sandbox_docker_keep_images": True, "select_k": 3}, sets)
    (file := tmp_path / "run.toml").write_text(text := spec_toml(request))
    again = spec_sources.read(file, {}, [])
    assert "run_id" not in text
    assert again.model_copy(update={"run_id": request.spec.run_id}) == request.spec


@pytest.mark.parametrize(
    ("flags", "line"),
    [({"agent_predictions": "gold"}, 'name = "gold"'), ({"agent_model": "openai/m"}, 'name = "r2egym"')],
)
def test_printed_spec_names_agent(flags: dict[str, str], line: str) -> None:
    assert line in spec_toml(spec_sources.read_request(None, flags, [])).splitlines()


def test_print_spec_writes_no_files(tmp_path: Path) -> None:
    words = ["run", "--print-spec", "--agent", "gold", "--k", "2", "--set", "sandbox.memory_mb=512"]
    result = swe_argo(*words, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == '[select]\nk = 2\n\n[agent]\nname = "gold"\n\n[sandbox]\nmemory_mb = 512\n'
    assert not list(tmp_path.iterdir())
    with_run_id = swe_argo(*words, "--run-id", "mine", cwd=tmp_path)
    assert with_run_id.stdout.startswith('run_id = "mine"\n')
