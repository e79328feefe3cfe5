from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from swe_argo.steps.contracts.data import Unit
from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store
from tests.forked_program import run_program
from tests.steps.reports.synthetic import Synthetic

FOLDER = "runs/synthetic/report/"


def contents(store: Store) -> dict[str, bytes]:
    return store.get_many(store.keys(FOLDER))


def unit_files(store: Store, unit: Unit) -> list[str]:
    return store.keys(f"runs/synthetic/units/{unit.instance_id}/{unit.attempt}/")


def test_report_writes_all_files(store: Store) -> None:
    plan = Synthetic(instances=20, attempts=2).write(store)
    summary = write_report(store, "synthetic")
    names = {name.removeprefix(FOLDER) for name in store.keys(FOLDER)}
    assert {name for name in names if name.startswith("instances/")} == {
        f"instances/{unit.instance_id}.{unit.attempt}.html" for unit in plan.units if unit_files(store, unit)
    }
    assert {name for name in names if "/" not in name} == {
        "lab__model-1.synthetic.json",
        "lab__model-1.synthetic.attempt-2.json",
        "preds.jsonl",
        "report.html",
        "summary.json",
        "units.parquet",
    }
    assert Summary.from_bytes(store.get(f"{FOLDER}summary.json")) == summary


def test_report_is_deterministic(store: Store) -> None:
    Synthetic(instances=20, attempts=2).write(store)
    write_report(store, "synthetic")
    first = contents(store)
    write_report(store, "synthetic")
    assert contents(store) == first


def test_report_removes_older_files(store: Store) -> None:
    Synthetic(instances=20, attempts=2).write(store)
    write_report(store, "synthetic")
    store.delete_many(store.keys("runs/synthetic/"))
    Synthetic(instances=3).write(store)
    store.put(f"{FOLDER}old__model.synthetic.json", b"{}")
    store.put(f"{FOLDER}leaderboard/logs/gone__gone-1/eval.sh", b"")
    store.put(f"{FOLDER}instances/gone__gone-1.1.html", b"")
    write_report(store, "synthetic")
    assert not [name for name in store.keys(FOLDER) if "old__" in name or "gone__" in name or "attempt-2" in name]


@pytest.mark.parametrize("mix", [{"not_run": 1}, {"failed": 1}, {"failed": 1, "not_run": 1, "resolved": 1}])
def test_stopped_run_is_incomplete(store: Store, mix: dict[str, float]) -> None:
    Synthetic(instances=9, mix=mix).write(store)
    summary = write_report(store, "synthetic")
    assert summary.headline.total == 9
    assert not summary.complete
    assert summary.doubts


def test_unplanned_run_has_report(store: Store) -> None:
    Synthetic(instances=2).write(store)
    store.delete_many(["runs/synthetic/plan.json"])
    summary = write_report(store, "synthetic")
    assert summary.headline.total == 0
    assert summary.doubts == ["No units are planned, so there is nothing to report."]
    official = json.loads(store.get(f"{FOLDER}lab__model-1.synthetic.json"))
    assert official["total_instances"] == 0
    assert store.get(f"{FOLDER}preds.jsonl") == b""


def test_leaderboard_files_are_exact(store: Store) -> None:
    plan = Synthetic(instances=30, attempts=2, suspects=0).write(store)
    write_report(store, "synthetic")
    bundle = f"{FOLDER}leaderboard/"
    assert store.get(f"{bundle}all_preds.jsonl") == store.get(f"{FOLDER}preds.jsonl")
    metadata = yaml.safe_load(store.get(f"{bundle}metadata.yaml"))
    assert metadata.items() >= {"name": "lab/model-1", "oss": False, "site": "", "verified": False}.items()
    assert metadata["conditions"]["hints"] is False
    assert b"Resolved" in store.get(f"{bundle}README.md")
    names = {"eval.sh", "patch.diff", "report.json", "run_instance.log", "test_output.txt"}
    whole = 0
    for unit in plan.units:
        source = f"runs/synthetic/units/{unit.instance_id}/1/"
        copied = store.keys(f"{bundle}logs/{unit.instance_id}/")
        assert {name.rpartition("/")[2] for name in copied} <= names
        whole += len(copied) == len(names)
        for name in copied:
            assert store.get(name) == store.get(source + name.rpartition("/")[2])
        trace = store.get_many([f"{source}trajectory.json"])
        assert list(trace.values()) == list(store.get_many([f"{bundle}trajs/{unit.instance_id}.json"]).values())
    assert whole > 20


@pytest.mark.parametrize(
    "model", ["<script>alert(1)</script>", "a_b*c*`d`[x](http://y)", 'q": "x\'\\n', "lab/😀 \u2028é", "# no: - yes"]
)
def test_leaderboard_escapes_model_name(store: Store, model: str) -> None:
    Synthetic(instances=2, model=model).write(store)
    write_report(store, "synthetic")
    metadata = yaml.safe_load(store.get(f"{FOLDER}leaderboard/metadata.yaml"))
    assert metadata["name"] == model
    read_me = store.get(f"{FOLDER}leaderboard/README.md").decode()
    title, _, body = read_me.partition("\n")
    unescaped = re.sub(r"\\(.)", r"\1", title.removeprefix("# ").replace(r"\\u2028", "\u2028"))
    assert unescaped == " ".join(model.split())
    assert not re.findall(r"(?<!\\)[<>`*_\[\]]", title)
    assert body.startswith("\n- Resolved"), "one line"
    predictions = [json.loads(line) for line in store.get(f"{FOLDER}leaderboard/all_preds.jsonl").splitlines()]
    assert {row["model_name_or_path"] for row in predictions} <= {model}


def test_units_table_has_typed_rows(store: Store, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    Synthetic(instances=60, attempts=2, hostile=True).write(store)
    summary = write_report(store, "synthetic")
    file = tmp_path / "units.parquet"
    file.write_bytes(store.get(f"{FOLDER}units.parquet"))
    table = pq.read_table(file)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["instance_id"] == "string"
    assert types["attempt"] == "int64"
    assert types["resolved"] == "bool"
    assert types["seconds"].startswith("map<string, double")
    assert types["findings"].startswith("list<")
    rows = table.to_pylist()
    assert {(row["agent"], row["dataset"]) for row in rows} == {("replay", summary.dataset.name)}
    assert len(rows) == 120
    assert sum(row["resolved"] is True for row in rows) == summary.outcomes["resolved"]
    assert sum(row["standing"] == "failed" for row in rows) == summary.outcomes["failed"]
    assert all(row["resolved"] is None for row in rows if row["standing"] in ("failed", "not_run"))
    assert all(row["failure_class"] for row in rows if row["standing"] == "failed")
    for name in ("calls", "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"):
        assert sum(row[name] for row in rows) == getattr(summary.cost.usage, name) > 0
        assert sum(row[f"failed_tries_{name}"] for row in rows) == getattr(summary.cost.failed_tries, name) > 0
    assert sum(row["model_seconds"] for row in rows) == pytest.approx(summary.cost.usage.seconds)
    assert {row["turns"] for row in rows} == {4, None}
    assert sum(row["total_seconds"] for row in rows) == pytest.approx(summary.seconds["total"].total)


def nights(store: Store, *names: str, **spec: Any) -> None:
    """Finished runs of one spec, one a day."""
    for number, name in enumerate(names):
        mix = {"resolved": 60, "unresolved": 30 + 20 * number}
        created = f"2026-11-{11 + number}T22:00:00Z"
        Synthetic(name, instances=30, mix=mix, created_at=created, log_lines=1, **spec).write(store)


def comparison(store: Store, run: str) -> Comparison:
    return Comparison.from_bytes(store.get(f"runs/{run}/report/compare.json"))


def test_report_compares_with_last_run(store: Store) -> None:
    nights(store, "one", "two", "three")
    write_report(store, "one")
    write_report(store, "two")
    write_report(store, "three", "last")
    result = comparison(store, "three")
    assert result.against == "two"
    assert result.common == 30
    page = store.get("runs/three/report/report.html").decode()
    assert "Compared with two" in page
    assert 'href="compare.json"' in page


def test_report_compares_with_named_run(store: Store) -> None:
    Synthetic("idle", instances=30, agent="idle", model="idle", mix={"unresolved": 1}, log_lines=1).write(store)
    nights(store, "one")
    write_report(store, "one", "idle")
    assert {("agent.name", "idle", "replay"), ("model", "idle", "lab/model-1")} <= {
        (change.title, change.before, change.after) for change in comparison(store, "one").changes
    }


def test_report_updates_comparison(store: Store) -> None:
    nights(store, "one", "two")
    write_report(store, "two", "one")
    first = comparison(store, "two")
    nights(store, "one", seed=5)
    write_report(store, "two")
    assert comparison(store, "two").against == "one"
    assert comparison(store, "two") != first


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ("last", "no earlier finished run of the same spec"),
        ("two", "a run cannot be compared with itself"),
        ("gone", "there is no run &#39;gone&#39;: "),
    ],
)
def test_report_notes_no_comparison(store: Store, against: str, message: str) -> None:
    nights(store, "two")
    write_report(store, "two", against)
    assert store.keys("runs/two/report/")
    assert "runs/two/report/compare.json" not in store.keys("runs/two/report/")
    page = store.get("runs/two/report/report.html").decode()
    assert "Not compared with another run: " in page
    assert message in page


def test_report_program_writes_outcome(store: Store, tmp_path: Path) -> None:
    nights(store, "one", "two")
    for run, against in (("one", ""), ("two", "last")):
        words = ["--store", store.url, "--run", run, "--against", against, "--out", str(tmp_path / run)]
        result = run_program("swe_argo.steps.report", words)
        assert result.returncode == 0, result.stderr
    summary = Summary.from_bytes(store.get("runs/two/report/summary.json"))
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["outcome", "report.html"]
    assert (tmp_path / "two/outcome").read_text() == f"resolved {summary.headline.resolved} of 30"
    assert (tmp_path / "two/report.html").read_bytes() == store.get("runs/two/report/report.html")
    assert comparison(store, "two").against == "one"
    assert b"ompared with" not in store.get("runs/one/report/report.html")
