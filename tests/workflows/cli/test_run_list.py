from __future__ import annotations

import io
import json
import time
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.record import Record, key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.run_lock import DEAD_S, Lock
from swe_argo.workflows.cli import run_list
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import swe_argo

LONG = "a-run-with-a-name-of-sixty-three-letters-as-long-as-they-may-be"


def listed(store: Store) -> str:
    text = io.StringIO()
    run_list.print_runs(store, Console(file=text, width=40))
    return text.getvalue()


def a_run(tmp_path: Path, name: str = LONG) -> Store:
    store = open_store(str(tmp_path / "store"), create=True)
    Synthetic(run_id=name, instances=2).write(store)
    return store


def test_run_list_never_cuts_run_id(tmp_path: Path) -> None:
    lines = listed(a_run(tmp_path)).splitlines()
    assert len(lines) == 2
    assert lines[0].split() == ["started", "(UTC)", "resolved", "run", "agent", "and", "model", "dataset"]
    assert LONG in lines[1].split()
    assert "no report" in lines[1]


def test_run_list_shows_model(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    Synthetic(run_id="asked", instances=3, agent="r2egym", model="lab/m-1", mix={"not_run": 1}).write(store)
    write_report(store, "asked")
    (line,) = listed(store).splitlines()[1:]
    assert "  no score  asked  r2egym, lab/m-1  " in line
    assert line.endswith("  3 without a verdict")


def test_missing_verdict_is_reported(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    plan = Synthetic(run_id="twice", instances=2, attempts=2, mix={"resolved": 1}).write(store)
    store.delete_many([key(GradeRecord, "twice", plan.units[-1].instance_id, 2)])
    result = swe_argo("report", "twice", "--store", store.url)
    assert (result.returncode, result.stderr) == (3, "")
    (line,) = listed(store).splitlines()[1:]
    assert "  no score  twice  " in line
    assert line.endswith("  1 without a verdict")


def test_run_list_marks_run_at_work(tmp_path: Path) -> None:
    store = a_run(tmp_path, "again")
    write_report(store, "again")
    lock = Lock(token="t", process="p", pid=1, host="elsewhere", alive_at=time.time())
    store.put(key(Lock, "again"), lock.to_bytes())
    assert "  working  again  " in listed(store)
    store.put(key(Lock, "again"), lock.model_copy(update={"alive_at": time.time() - 2 * DEAD_S}).to_bytes())
    assert "/2  again  " in listed(store)


def test_run_list_survives_older_files(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    Synthetic(run_id="old", instances=2).write(store)
    store.put(key(Summary, LONG), b'{"format": "another"}')
    store.put(key(RunFile, "old"), b"{}")
    listing = listed(store)
    assert "unreadable" in next(line for line in listing.splitlines() if LONG in line)
    assert "run.json cannot be read" in next(line for line in listing.splitlines() if " old " in line)


def test_show_suggests_run_id(tmp_path: Path) -> None:
    store = a_run(tmp_path, "nightly-1")
    result = swe_argo("show", "nihgtly-1", "--store", store.url)
    assert result.returncode == 64
    assert "(did you mean nightly-1?); swe-argo runs --store " in result.stderr


@pytest.mark.parametrize(
    ("words", "kind"), [(["show"], Plan), (["export", "--format", "preds"], Plan), (["regrade"], RunFile)]
)
def test_commands_refuse_unreadable_run(tmp_path: Path, words: list[str], kind: type[Record]) -> None:
    store = a_run(tmp_path)
    store.put(key(kind, LONG), b"{}")
    result = swe_argo(*words, LONG, "--store", store.url)
    assert (result.returncode, result.stderr.count("\n")) == (64, 1)
    assert f"{kind.file} is broken or from another version of swe-argo" in result.stderr


def test_version_is_printed() -> None:
    assert swe_argo("--version").stdout == f"swe-argo {metadata.version('swe-argo')}\n"


def some_runs(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "store"), create=True)
    Synthetic(run_id="one", instances=2, agent="gold", spec={"tags": ["nightly", "team/a"]}).write(store)
    write_report(store, "one")
    Synthetic(run_id="two", instances=3, agent="r2egym", model="lab/m-1", mix={"not_run": 1}).write(store)
    write_report(store, "two")
    tags = {"tags": ["nightly"]}
    Synthetic(run_id="three", instances=1, agent="r2egym", model="lab/other", spec=tags).write(store)
    return store


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (run_list.RunFilter(), {"one", "two", "three"}),
        (run_list.RunFilter(words=("M-1", "r2e")), {"two"}),
        (run_list.RunFilter(agent="R2EGYM"), {"two", "three"}),
        (run_list.RunFilter(agent="r2e"), set()),
        (run_list.RunFilter(model="lab/m-1"), {"two"}),
        (run_list.RunFilter(dataset="nothing"), set()),
        (run_list.RunFilter(since="9999"), set()),
        (run_list.RunFilter(since="2000-01"), {"one", "two", "three"}),
        (run_list.RunFilter(unfinished=True), {"two", "three"}),
        (run_list.RunFilter(tags=("Nightly",)), {"one", "three"}),
        (run_list.RunFilter(tags=("nightly", "team/a")), {"one"}),
        (run_list.RunFilter(tags=("night",)), set()),
        (run_list.RunFilter(words=("team",)), {"one"}),
    ],
)
def test_runs_json_prints_filtered_runs(
    tmp_path: Path, chosen: run_list.RunFilter, names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = some_runs(tmp_path)
    capsys.readouterr()
    run_list.print_runs_json(store, chosen)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["run_id"] for row in rows} == names
    for row in rows:
        assert row["tags"] == {"one": ["nightly", "team/a"], "two": [], "three": ["nightly"]}[row["run_id"]]
        if row["run_id"] == "three":
            assert (row["resolved"], row["complete"], row["problem"]) == (None, False, "no report")
        if row["run_id"] == "two":
            assert (row["resolved"], row["total"], row["without_verdict"]) == (0, 3, 3)


def test_tags_show_in_run_list_and_show(tmp_path: Path) -> None:
    store = some_runs(tmp_path)
    lines = swe_argo("runs", "--tag", "nightly", "--store", store.url).stdout.splitlines()
    assert lines[0].split()[-2:] == ["dataset", "tags"]
    assert [line.split()[-1] for line in lines[1:]] == ["nightly,team/a", "nightly"]
    untagged = swe_argo("runs", "two", "--store", store.url).stdout.splitlines()
    assert untagged[0].split()[-1] == "dataset"
    assert "\ntags: nightly, team/a\n" in swe_argo("show", "one", "--store", store.url).stdout
    assert "tags:" not in swe_argo("show", "two", "--store", store.url).stdout


def test_runs_reports_empty_filter(tmp_path: Path) -> None:
    store = some_runs(tmp_path)
    text = swe_argo("runs", "nowhere", "--store", store.url).stdout
    assert text == f"no run in {store.url} matches; list all with: swe-argo runs --store {store.url}\n"
    last = swe_argo("runs", "--last", "1", "--json", "--store", store.url).stdout
    assert len(last.splitlines()) == 1
