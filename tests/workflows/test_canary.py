"""The canary of a run: its reference patches come first, and a failed one warns or stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import CANARY_ATTEMPT
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import EXIT_OK
from swe_argo.steps.planning.canary import DEFAULT_SIZE, MIN_UNITS, canary_size, plan_canary
from swe_argo.steps.store import Store, open_store
from swe_argo.workflows.terminal.progress import EXIT_FAILED
from tests.workflows.command import plan_request, summary, swe_argo
from tests.workflows.validation_rows import make_validation_rows

FAILED = "These machines cannot be trusted: the reference patch failed in 1 of 2 canary instances: gold-fails"


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """Return a run of two given patches; the reference patch of the second instance fails."""
    family = make_validation_rows(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    predictions = [
        {"instance_id": row["id"], "model_name_or_path": "m", "model_patch": row["gold"]} for row in rows[:2]
    ]
    (tmp_path / "preds.json").write_text(json.dumps(predictions))
    chosen = ("--instance", "good", "--instance", "gold-fails")
    agent = ("--agent", "given", "--predictions", str(tmp_path / "preds.json"), *chosen)
    store = ("--store", str(tmp_path / "store"), "--run-id", "r")
    return ("run", "--dataset", str(tmp_path / "rows.jsonl"), *family, *agent, *store)


def graded(folder: Path) -> set[str]:
    units = folder / "store/runs/r/units"
    return {str(path.parent.relative_to(units)) for path in units.glob("*/*/grade.json")}


def test_failed_canary_only_warns(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = swe_argo(*words, "--canary", "2")
    assert result.returncode == EXIT_OK, result.stdout + result.stderr
    text = " ".join(result.stdout.split())
    assert text.count(FAILED) == 2, "before the units, and on top of the end"
    assert text.index("[1/2] good") < text.index(FAILED) < text.rindex("[1/2] good"), "after the canary's own units"
    figures = summary(str(tmp_path / "store"), "r")
    assert figures.canary is not None
    assert (figures.canary.resolved, figures.canary.failed) == (["good"], {"gold-fails": "unresolved"})
    assert figures.doubts[0].startswith(FAILED)
    assert (figures.units, figures.headline.total) == (2, 2), "the canary is no unit of the run"
    assert f"<b>{FAILED}" in (tmp_path / "store/runs/r/report/report.html").read_text()


@pytest.mark.long
def test_resume_grades_canary_again(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert swe_argo(*words, "--canary", "2").returncode == EXIT_OK
    again = swe_argo(*words, "--stop-on-canary")
    assert again.returncode == EXIT_OK, "there is nothing to stop"
    assert "0 units to do" in again.stdout
    assert summary(str(tmp_path / "store"), "r").doubts[0].startswith(FAILED)
    (tmp_path / "store/runs/r/units/good/1/grade.json").unlink()
    again = swe_argo(*words)
    assert "canary: grading 1 reference patch first" in again.stdout, again.stderr
    assert summary(str(tmp_path / "store"), "r").doubts[0].startswith(FAILED)


@pytest.mark.long
def test_stop_on_canary_ends_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = swe_argo(*words, "--canary", "2", "--stop-on-canary")
    assert result.returncode == EXIT_FAILED, result.stdout + result.stderr
    assert graded(tmp_path) == {"good/0", "gold-fails/0"}
    assert "stopped because a canary failed; 2 units not started" in result.stdout
    assert "--stop-on-canary --no-stop-on-canary" in result.stdout
    again = swe_argo(*words, "--canary", "2", "--stop-on-canary", "--no-stop-on-canary")
    assert again.returncode == EXIT_OK, again.stderr
    assert "canary: grading 1 reference patch first" in again.stdout, "the one that was resolved is not graded again"
    assert graded(tmp_path) == {"good/0", "gold-fails/0", "good/1", "gold-fails/1"}


def test_canary_grades_first_instances(tmp_path: Path, words: tuple[str, ...]) -> None:
    canary = plan_request(*words[1:], "--canary", "1").canary
    assert [(unit.instance_id, unit.attempt) for unit in canary] == [("good", 0)]


@pytest.mark.parametrize(
    ("agent", "backend", "canary", "to_do", "size"),
    [
        ("given", "kubernetes", None, MIN_UNITS, DEFAULT_SIZE),
        ("given", "kubernetes", None, MIN_UNITS - 1, 0),
        ("given", "kubernetes", 0, 500, 0),
        ("given", "docker", None, 500, 0),
        ("given", "local", 2, 1, 2),
        ("given", "local", 2, 0, 0),
        ("gold", "kubernetes", 5, 500, 0),
        ("idle", "kubernetes", None, 500, 0),
    ],
)
def test_canary_size_follows_agent(agent: str, backend: str, canary: int | None, to_do: int, size: int) -> None:
    spec = RunSpec(agent=AgentSpec(name=agent), sandbox=SandboxSpec(backend=backend), canary=canary)
    assert canary_size(spec, to_do) == size


def rows_of(*repos: str, patch: str = "diff") -> list[dict[str, str]]:
    return [{"instance_id": f"i{n}", "repo": repo, "image": "x", "patch": patch} for n, repo in enumerate(repos)]


def test_canary_covers_repositories(store: Store) -> None:
    spec = RunSpec(run_id="r", agent=AgentSpec(name="given"), canary=3)
    canary = plan_canary(spec, rows_of("a", "a", "a", "b", "b"), 5, store, doubtful={"i3"})
    assert [unit.instance_id for unit in canary.units] == ["i0", "i4", "i1"]
    assert {unit.attempt for unit in canary.units} == {CANARY_ATTEMPT}


def test_canary_needs_reference_patches(store: Store) -> None:
    spec = RunSpec(run_id="r", agent=AgentSpec(name="given"), canary=3)
    canary = plan_canary(spec, rows_of("a", patch=""), 1, store, doubtful=())
    assert canary.units == []
    assert canary.notices == [
        "no canary: all instances lack a reference patch; nothing tests whether the machines can be trusted"
    ]
    assert open_store(store.url).keys("runs/") == []
