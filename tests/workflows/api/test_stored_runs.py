"""Stored runs as a program reads them, from a folder and from a bucket."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import swe_argo
from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store, open_store
from swe_argo.workflows.view.run_lines import RunLines
from tests.workflows.api.conftest import CHOSEN
from tests.workflows.command import call

pytestmark = pytest.mark.xdist_group("stored-runs")  # the two runs are made once, not by every worker


@pytest.fixture(params=["folder", "bucket"])
def url(request: pytest.FixtureRequest, real_store: Path) -> str:
    """The store of real runs as it was written, and the same in a bucket."""
    if request.param == "folder":
        return str(real_store)
    bucket = request.getfixturevalue("bucket")
    source, copy = open_store(str(real_store)), open_store(f"s3://{bucket}/team", create=True)
    copy.put_many({name: source.get(name) for name in source.keys("runs/")})
    return copy.url


@pytest.mark.long
def test_stored_unit_returns_records(url: str) -> None:
    run, files = swe_argo.open_runs(url).run("scripted"), open_store(url)
    assert [unit.instance_id for unit in run] == [unit.instance_id for unit in run.plan.units]
    assert {unit.instance_id: (unit.resolved, unit.reward) for unit in run} == {
        "mini__slugkit-1": (False, 0.0),
        "mini__slugkit-2": (True, 1.0),
    }
    unit = run.unit("mini__slugkit-2")
    assert unit.grade == GradeRecord.from_bytes(files.get(key(GradeRecord, "scripted", unit.instance_id, 1)))
    trajectory = Trajectory.from_bytes(files.get(key(Trajectory, "scripted", unit.instance_id, 1)))
    assert unit.trajectory == trajectory
    assert [step.source for step in trajectory.steps] == ["user", "agent", "agent"]
    assert (unit.patch or "").encode() == files.get(key(Patch, "scripted", unit.instance_id, 1))
    assert unit.solve
    assert unit.solve.patch_bytes == len(unit.patch or "")
    assert unit.instance
    assert unit.instance.problem_statement.startswith("max_length drops a word")
    assert "slugkit" in (unit.log or "")
    assert not unit.failures


def test_units_frame_has_row_per_unit(url: str) -> None:
    frame = swe_argo.open_runs(url).run("scripted").units_frame().set_index("instance_id")
    assert list(frame.index) == CHOSEN
    assert frame.dataset.tolist() == ["mini", "mini"]
    assert frame.agent.tolist() == ["Scripted", "Scripted"]
    assert frame.resolved.tolist() == [False, True]
    assert str(frame.patch_bytes.dtype) == "int64[pyarrow]"
    assert frame.total_seconds.min() > 0


def test_calls_frame_has_row_per_call(url: str) -> None:
    frame = swe_argo.open_runs(url).run("scripted").calls_frame()
    assert frame[["instance_id", "turn", "step_id", "kind", "name"]].to_numpy().tolist() == [
        [instance, turn, turn + 1, "tool", "bash"] for instance in CHOSEN for turn in (1, 2)
    ]
    assert frame.exit_code.tolist() == [1, 0, 0, 0]
    assert frame.timestamp.notna().all()


def test_compare_matches_command_line(url: str) -> None:
    runs = swe_argo.open_runs(url)
    compared = runs.run("gold").compare(runs.run("scripted"))
    assert [unit.instance_id for unit in compared.gained] == ["mini__slugkit-1"]
    result = call("compare", "scripted", "gold", "--store", url, "--json")
    assert result.stdout.encode() == compared.to_bytes()


def test_run_store_lists_runs(url: str) -> None:
    runs = {run.run_id: run for run in swe_argo.open_runs(url)}
    assert {name: run.summary.word for name, run in runs.items()} == {
        "gold": "resolved 2 of 2",
        "scripted": "resolved 1 of 2 (1 unconfirmed)",
    }
    assert runs["gold"].file.spec.agent.name == "gold"
    assert runs["gold"].page == open_store(url).locate("runs/gold/report/report.html")


def test_lost_verdict_is_not_zero(real_store: Path, tmp_path: Path) -> None:
    store = copied(real_store, tmp_path)
    run = swe_argo.open_runs(store.url).run("scripted")
    store.delete_many([key(GradeRecord, "scripted", CHOSEN[0], 1), key(Summary, "scripted")])
    unit = run.unit(CHOSEN[0])
    assert (unit.standing, unit.resolved, unit.reward, unit.log is None) == ("not_run", None, None, False)
    assert run.units_frame().reward.isna().tolist() == [True, False]
    assert (run.progress().ended, run.progress().total, run.progress().being_worked_on) == (1, 2, False)
    assert run.write_report().headline.graded == 1
    assert run.units_frame().reward.isna().tolist() == [True, False]


BAD_USAGE = {"calls": 2, "prompt_tokens": 10, "cached_tokens": 10**5, "completion_tokens": 1e30, "cost_usd": -0.03}


def test_commands_survive_bad_numbers(real_store: Path, tmp_path: Path) -> None:
    store, unit = copied(real_store, tmp_path), (CHOSEN[1], 1)
    solve, trajectory = key(SolveRecord, "scripted", *unit), key(Trajectory, "scripted", *unit)
    store.put(solve, json.dumps(json.loads(store.get(solve)) | {"usage": BAD_USAGE}).encode())
    data = json.loads(store.get(trajectory))
    data["extra"]["usage"] = BAD_USAGE | {"cost_usd": float("nan")}
    data["final_metrics"] |= {"total_prompt_tokens": 10, "total_cached_tokens": 10**5, "total_cost_usd": float("-inf")}
    metrics = {"prompt_tokens": 10, "cached_tokens": 10**5, "cost_usd": -0.03, "logprobs": [-0.1, float("-inf")]}
    data["steps"][-1]["metrics"] = metrics
    store.put(trajectory, json.dumps(data).encode())
    summary = key(Summary, "scripted")
    old = json.loads(store.get(summary))
    old["cost"] |= {"usage": BAD_USAGE, "usd_per_resolved": -0.03}
    store.put(summary, json.dumps(old).encode())
    out = tmp_path / "out"
    for words in (
        ("runs",),
        ("compare", "gold", "scripted"),
        ("report", "scripted"),
        ("show", "scripted", CHOSEN[1]),
        ("export", "scripted", "--out", str(out), "--format", "atif"),
    ):
        result = call(*words, "--store", store.url)
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    cost = swe_argo.open_runs(store.url).run("scripted").summary.cost
    assert (cost.usage.cost_usd, cost.usage.cached_tokens, cost.usage.completion_tokens) == (None, 10, 0)
    assert {line.state for line in RunLines(store).read(whole=True)} == {"done"}
    (exported,) = out.rglob(f"*{CHOSEN[1]}*/**/trajectory.json")
    assert "Infinity" not in exported.read_text()
    assert "NaN" not in exported.read_text()


def copied(real_store: Path, tmp_path: Path) -> Store:
    shutil.copytree(real_store, tmp_path / "copy")
    return open_store(str(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (lambda _: swe_argo.open_runs("ftp://here"), "neither a folder nor s3://bucket/prefix"),
        (lambda runs: runs.run("scripte"), "did you mean scripted?"),
        (lambda runs: runs.run("gold/"), "there is no run 'gold/'"),
        (lambda runs: runs.run("../runs/gold"), "there is no run '../runs/gold'"),
        (lambda runs: runs.run("\0"), "there is no run"),
        (lambda runs: runs.run("gold").unit("mini__slugkit-3"), "did you mean mini__slugkit-"),
        (lambda runs: runs.run("gold").unit(CHOSEN[0], attempt=2), "has 1 attempt in run 'gold', not 2"),
        (lambda runs: runs.run("gold").compare(runs.run("gold")), "cannot compare 'gold' with itself"),
        (lambda _: swe_argo.make_request({"agent.nme": "gold"}), "did you mean 'agent.name'?"),
        (lambda _: swe_argo.make_request({"workers": "many"}), "workers: input should be a whole number, not 'many'"),
        (lambda _: swe_argo.make_request({"agent.name.x": "gold"}), "agent.name: input should be"),
        (lambda _: swe_argo.make_request(file="none.toml"), "there is no file none.toml"),
    ],
)
def test_api_refuses_in_one_line(real_store: Path, wrong: Callable[[swe_argo.RunStore], object], line: str) -> None:
    with pytest.raises(swe_argo.ConfigError) as caught:
        wrong(swe_argo.open_runs(str(real_store)))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_run_is_not_suggested(tmp_path: Path) -> None:
    assert swe_argo.open_runs(str(tmp_path / "nothing")).runs() == []
    (tmp_path / "runs" / "young").mkdir(parents=True)
    with pytest.raises(swe_argo.ConfigError, match=r"there is no run 'young' in \S+; swe-argo runs"):
        swe_argo.open_runs(tmp_path).run("young")


def test_api_accepts_path_objects(real_store: Path) -> None:
    assert [run.run_id for run in swe_argo.open_runs(real_store)] == ["gold", "scripted"]
    request = swe_argo.make_request({"store": real_store, "agent": {"predictions": Path("preds.jsonl")}})
    assert (request.spec.store, request.spec.agent.predictions) == (str(real_store), "preds.jsonl")


def test_broken_verdict_is_unreadable(real_store: Path, tmp_path: Path) -> None:
    store = copied(real_store, tmp_path)
    name = key(GradeRecord, "scripted", CHOSEN[0], 1)
    store.put(name, b"{}")
    run = swe_argo.open_runs(store.url).run("scripted")
    for units in (run.units(), [run.unit(instance) for instance in CHOSEN]):
        assert [unit.unreadable for unit in units] == [(name,), ()]
        assert [unit.reward for unit in units] == [None, 1.0]


def test_broken_trajectory_is_named(real_store: Path, tmp_path: Path) -> None:
    store = copied(real_store, tmp_path)
    name = key(Trajectory, "scripted", CHOSEN[0], 1)
    store.put(name, b"{}")
    unit = swe_argo.open_runs(store.url).run("scripted").unit(CHOSEN[0])
    with pytest.raises(swe_argo.ConfigError, match=r"trajectory\.json is broken or from another version"):
        _ = unit.trajectory
    with pytest.raises(swe_argo.ConfigError, match=r"trajectory\.json is broken"):
        swe_argo.open_runs(store.url).run("scripted").calls_frame()
    assert unit.resolved is False


def test_read_instances_returns_rows() -> None:
    request = swe_argo.make_request({"dataset": "mini", "select": {"repos": ["mini/slugkit"]}, "select.k": 1})
    (instance,) = swe_argo.read_instances(request)
    assert (instance.instance_id, instance.repo) == ("mini__slugkit-1", "mini/slugkit")


def test_request_reloads_agent_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    for name, most in (("First", 7), ("Second", 8)):
        file.write_text(f"class {name}:\n    defaults = {{'max_steps': {most}}}\n    def act(self, task): ...\n")
        assert swe_argo.make_request({"agent.name": f"{file}:{name}"}).spec.agent.max_steps == most


def test_api_reads_runs_without_pandas(real_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = swe_argo.open_runs(str(real_store)).run("gold")
    assert run.summary.word == "resolved 2 of 2"
    for frame in (run.units_frame, run.calls_frame):
        with pytest.raises(swe_argo.ConfigError, match=r"data frames need pandas: pip install 'swe-argo\[notebook\]'"):
            frame()
