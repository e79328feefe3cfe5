"""A run that grows under the same run id: more instances, more attempts, units run again, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.store import open_store
from tests.workflows.command import QUICK, call, ids, plan, plan_refusal, summary, swe_argo

pytestmark = pytest.mark.xdist_group("growth")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a run of one instance and one attempt, which the first test makes grow."""
    store = str(tmp_path_factory.mktemp("store"))
    result = swe_argo("run", *words_of(store), *ids(QUICK[0]))
    assert result.returncode == 0, result.stdout + result.stderr
    return store


def words_of(store: str, run_id: str = "r") -> list[str]:
    return ["--agent", "idle", "--store", store, "--run-id", run_id]


def stored(store: str) -> dict[str, bytes]:
    opened = open_store(store)
    return {name: opened.get(name) for name in opened.keys("runs/r/") if "/report/" not in name}


def test_run_grows_and_keeps_units(small: str) -> None:
    before = {name: data for name, data in stored(small).items() if "/units/" in name}
    result = swe_argo("run", *words_of(small), "-n", "2", *ids(*QUICK[:2]))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "note: run r grows: 1 -> 2 instances, 1 -> 2 attempts; existing results are kept" in result.stdout
    assert "r: 3 units to do, 1 done before" in result.stdout
    after = stored(small)
    assert {name: after[name] for name in before} == before
    assert (summary(small, "r").headline.total, summary(small, "r").headline.resolved) == (4, 0)
    assert [figures.attempt for figures in summary(small, "r").attempts] == [1, 2]
    names = {path.name for path in Path(small, "runs", "r", "report").glob("idle.r*.json")}
    assert names == {"idle.r.json", "idle.r.attempt-2.json"}


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
    refusal = str(plan_refusal(*words_of(small), *words))
    assert reason in refusal
    assert "use another run id" in refusal
    assert stored(small) == before


def test_redo_keeps_old_verdicts(small: str) -> None:
    before = stored(small)
    words = [*words_of(small), "-n", "2", *ids(*QUICK[:2])]
    result = swe_argo("run", *words, "--redo", f"{QUICK[0]}/2,resolved")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 unit was run again" in result.stdout
    assert "r: 1 unit to do, 3 done before" in result.stdout
    after, unit = stored(small), f"runs/r/units/{QUICK[0]}/2"
    (record_name,) = [name for name in after if name.endswith("/redone.json")]
    folder = record_name.removesuffix("redone.json")
    assert folder.startswith(f"{unit}/tries/redone-")
    for file in ("grade.json", "test_output.txt", "report.json"):
        assert after[folder + file] == before[f"{unit}/{file}"]
    record = json.loads(after[record_name])
    assert (record["outcome"], record["requested"]) == ("unresolved", f"{QUICK[0]}/2")
    assert json.loads(after["runs/r/run.json"])["spec"]["redo"] == []
    page = Path(small, "runs", "r", "report", "report.html").read_text("utf-8")
    assert "1 unit was run again by --redo (1 unresolved before); 0 of them resolved only then" in page
    assert f"(--redo {QUICK[0]}/2)" in call("show", "r", QUICK[0], "--attempt", "2", "--store", small).stdout
    assert plan(small, "r").to_do


def test_redo_suggests_known_words(small: str) -> None:
    refusal = plan_refusal(*words_of(small), "-n", "2", *ids(*QUICK[:2]), "--redo", "unresolvd")
    message = "'unresolvd' is not an outcome, stop reason or selected instance (did you mean unresolved or resolved?)"
    assert message in str(refusal)
    assert "has no run 'new'" in str(plan_refusal(*words_of(small, "new"), "--redo", "resolved"))
