"""A run that grows by the same run id: more instances, more attempts, units done again, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.store import open_store
from tests.workflows.command import QUICK, ids, plan, summary, swe_argo

pytestmark = pytest.mark.xdist_group("growth")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a run of one instance and one attempt, which the first test makes grow."""
    store = str(tmp_path_factory.mktemp("store"))
    result = swe_argo("run", "--agent", "idle", "--store", store, "--run-id", "r", *ids(QUICK[0]))
    assert result.returncode == 0, result.stdout + result.stderr
    return store


def stored(store: str) -> dict[str, bytes]:
    opened = open_store(store)
    return {name: opened.get(name) for name in opened.keys("runs/r/") if "/report/" not in name}


def test_run_grows_and_keeps_units(small: str) -> None:
    before = {name: data for name, data in stored(small).items() if "/units/" in name}
    result = swe_argo("run", "--agent", "idle", "--store", small, "--run-id", "r", "-n", "2", *ids(*QUICK[:2]))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "note: run r grows: 1 -> 2 instances, 1 -> 2 attempts; existing results are kept" in result.stdout
    assert "r: 3 units to do, 1 done before" in result.stdout
    after = stored(small)
    assert {name: after[name] for name in before} == before
    assert summary(small, "r").headline.total == 4
    assert [figures.attempt for figures in summary(small, "r").attempts] == [1, 2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-n", "1", *ids(*QUICK[:2])], "(attempts was 2, now 1)"),
        (
            ["-n", "2", *ids(QUICK[1])],
            f"1 instance that the spec no longer selects, {QUICK[0]} (select.instance_ids was [",
        ),
        (["-n", "3", "--timeout", "99", *ids(*QUICK[:3])], "(grading.timeout_s was 1800, now 99)"),
    ],
    ids=["attempts", "instances", "measured"],
)
def test_run_refuses_changed_spec(small: str, words: list[str], reason: str) -> None:
    before = stored(small)
    result = swe_argo("run", "--agent", "idle", "--store", small, "--run-id", "r", *words)
    assert result.returncode == 64
    (line,) = result.stderr.strip().splitlines()
    assert reason in line
    assert "use another run id" in line
    assert stored(small) == before


def test_redo_keeps_old_verdicts(small: str) -> None:
    words = ["run", "--agent", "idle", "--store", small, "--run-id", "r", "-n", "2", *ids(*QUICK[:2])]
    before = stored(small)
    result = swe_argo(*words, "--redo", f"{QUICK[0]}/2,resolved")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 unit was run again" in result.stdout
    assert "r: 1 unit to do, 3 done before" in result.stdout
    unit = f"runs/r/units/{QUICK[0]}/2"
    (record_name,) = [name for name in stored(small) if name.endswith("/redone.json")]
    folder = record_name.removesuffix("redone.json")
    assert folder.startswith(f"{unit}/tries/redone-")
    for file in ("grade.json", "test_output.txt", "report.json"):
        assert stored(small)[folder + file] == before[f"{unit}/{file}"]
    record = json.loads(stored(small)[record_name])
    assert (record["outcome"], record["requested"]) == ("unresolved", f"{QUICK[0]}/2")
    assert json.loads(stored(small)["runs/r/run.json"])["spec"]["redo"] == []
    assert "1 unit was run again by --redo (1 unresolved before); 0 of them resolved only then" in Path(
        small, "runs", "r", "report", "report.html"
    ).read_text("utf-8")
    again = swe_argo("show", "r", QUICK[0], "--attempt", "2", "--store", small)
    assert f"(--redo {QUICK[0]}/2)" in again.stdout
    assert plan(small, "r").to_do


def test_redo_suggests_known_words(small: str) -> None:
    words = ["run", "--agent", "idle", "--store", small, "--run-id", "r", "-n", "2", *ids(*QUICK[:2])]
    result = swe_argo(*words, "--redo", "unresolvd")
    assert result.returncode == 64
    assert (
        "'unresolvd' is not an outcome, stop reason or selected instance (did you mean unresolved or resolved?)"
        in result.stderr
    )
    result = swe_argo("run", "--agent", "idle", "--store", small, "--run-id", "new", "--redo", "resolved")
    assert result.returncode == 64
    assert "has no run 'new'" in result.stderr
