"""Runs started by a program: it can watch, stop, kill and resume them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import swe_argo
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.workflows import waiting_backend
from tests.workflows.command import wait_for

IDS = ["mini__gridprint-1", "mini__slugkit-1", "mini__slugkit-2"]


def gold(store: Path | str, **more: object) -> swe_argo.RunRequest:
    """Return a request for the reference patches of three instances, one at a time."""
    fields = {"store": str(store), "run_id": "r", "agent.name": "gold", "select.instance_ids": IDS, "workers": 1}
    return swe_argo.make_request({**fields, **more})


def verdicts(store: Path) -> dict[str, bytes]:
    """Return the stored verdicts by key."""
    return open_store(str(store)).get_many(key(GradeRecord, "r", instance, 1) for instance in IDS)


def test_run_handle_yields_events(tmp_path: Path) -> None:
    backend, go = waiting_backend.copy_to(tmp_path)
    handle = swe_argo.start(gold(tmp_path / "store", **{"sandbox.backend": backend}))
    observed = []
    for event in handle:
        if event.unit and event.unit.kind == "done":
            run = swe_argo.open_runs(str(tmp_path / "store")).run("r")
            unit = run.unit(event.unit.unit.instance_id)
            observed.append((event.ended, event.total, unit.resolved, run.progress().ended >= event.ended))
            assert run.progress().being_worked_on or go.exists()  # from then on it may be over before it is looked at
            assert len(run.units_frame()) == len(IDS)
            go.touch()
    assert observed == [(1, 3, True, True), (2, 3, True, True), (3, 3, True, True)]
    result = handle.result()
    assert (result.complete, result.stopped, result.reason) == (True, False, "")
    assert result.summary.headline.resolved == 3
    assert not result.run.progress().being_worked_on
    assert [str(event) for event in handle if event.kind == "planned"] == ["r: 3 units to do"]  # from the first on


def test_start_runs_in_bucket(bucket: str) -> None:
    result = swe_argo.start(gold(f"s3://{bucket}/team", **{"select.instance_ids": IDS[:1]})).result()
    assert result.summary.word == "resolved 1 of 1"
    assert [unit.resolved for unit in swe_argo.open_runs(f"s3://{bucket}/team").run("r")] == [True]


@pytest.mark.long
def test_stopped_run_resumes(tmp_path: Path) -> None:
    backend, go = waiting_backend.copy_to(tmp_path)
    request = gold(tmp_path / "store", **{"sandbox.backend": backend})
    handle = swe_argo.start(request)
    for event in handle:
        if event.unit and event.unit.kind == "done":
            handle.cancel()
            break
    result = handle.result()
    assert (handle.is_over, result.stopped, result.complete) == (True, True, False)
    before = verdicts(tmp_path / "store")
    assert len(before) == 1
    go.touch()
    again = swe_argo.start(request).result()
    assert (again.stopped, again.complete) == (False, True)
    assert {name: verdicts(tmp_path / "store")[name] for name in before} == before


def test_exception_stops_run(tmp_path: Path) -> None:
    def watch() -> None:
        with handle:
            for event in handle:
                if event.kind == "planned":
                    raise ZeroDivisionError

    backend, _ = waiting_backend.copy_to(tmp_path)
    handle = swe_argo.start(gold(tmp_path / "store", **{"sandbox.backend": backend}))
    with pytest.raises(ZeroDivisionError):
        watch()
    assert handle.is_over
    assert handle.result().stopped


PROGRAM = """
import signal, sys
import swe_argo
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have it ignored
fields = {{"store": {store!r}, "run_id": "r", "agent.name": "gold", "select.instance_ids": {ids!r}, "workers": 1}}
fields["sandbox.backend"] = {backend!r}
try:
    {wait}
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one that comes late
    print("over:", handle.is_over, "stopped:", handle.result().stopped, flush=True)
"""
WAYS = {
    "watch": """with swe_argo.start(swe_argo.make_request(fields)) as handle:
        for event in handle:
            print(event, flush=True)""",
    "result": """handle = swe_argo.start(swe_argo.make_request(fields))
    handle.result()""",
    "leave": """with swe_argo.start(swe_argo.make_request(fields)) as handle:
        pass""",
}


def begin(store: Path, backend: str, way: str = "watch") -> subprocess.Popen[str]:
    """Start a program that starts the run and prints its events, or waits for its end."""
    program = PROGRAM.format(store=str(store), ids=IDS, backend=backend, wait=WAYS[way])
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.long
def test_run_of_killed_program_resumes(tmp_path: Path) -> None:
    store, (backend, go) = tmp_path / "store", waiting_backend.copy_to(tmp_path)
    with begin(store, backend) as program:
        wait_for(lambda: verdicts(store) or program.poll() is not None)
        program.kill()
    before = verdicts(store)
    assert len(before) == 1
    go.touch()
    result = swe_argo.start(gold(store, **{"sandbox.backend": backend})).result()
    assert result.complete
    assert {name: verdicts(store)[name] for name in before} == before


@pytest.mark.parametrize("way", [pytest.param(way, marks=[] if way == "watch" else pytest.mark.long) for way in WAYS])
def test_ctrl_c_stops_waiting_program(tmp_path: Path, way: str) -> None:
    store, (backend, _) = tmp_path / "store", waiting_backend.copy_to(tmp_path)
    with begin(store, backend, way) as program:
        wait_for(lambda: verdicts(store) or program.poll() is not None)
        os.kill(program.pid, signal.SIGINT)
        output, _ = program.communicate()
    assert output.splitlines()[-1] == "over: True stopped: True"
    run = swe_argo.open_runs(str(store)).run("r")
    assert run.has_report
    assert not run.progress().being_worked_on
    assert run.progress().ended == 1


def test_second_ctrl_c_waits_for_report(tmp_path: Path) -> None:
    store, (backend, _) = tmp_path / "store", waiting_backend.copy_to(tmp_path)
    with begin(store, backend, "result") as program:
        wait_for(lambda: verdicts(store) or program.poll() is not None)
        for _ in range(2):
            os.kill(program.pid, signal.SIGINT)
            time.sleep(0.05)  # else the two are one
        output, _ = program.communicate()
    assert output.splitlines()[-1] == "over: True stopped: True"
    assert swe_argo.open_runs(str(store)).run("r").has_report


HANGS_IN_PLAN = """
import sys, time
if getattr(sys.modules["__main__"].__spec__, "name", "") == "swe_argo.steps.plan":
    print("planning now", flush=True)
    time.sleep(600)
class Agent:
    def act(self, task):
        raise AssertionError
"""


def test_cancel_while_planning_is_quick(tmp_path: Path) -> None:
    agent = tmp_path / "slow_agent.py"
    agent.write_text(HANGS_IN_PLAN)
    handle = swe_argo.start(gold(tmp_path / "store", **{"agent.name": f"{agent}:Agent"}))
    assert any("planning now" in event.text for event in handle)
    handle.cancel()
    with pytest.raises(swe_argo.InfraError, match="was stopped during planning"):
        handle.result()


def test_result_raises_refusal_of_plan(tmp_path: Path) -> None:
    handle = swe_argo.start(gold(tmp_path, dataset="minii"))
    with pytest.raises(swe_argo.ConfigError, match="did you mean mini") as caught:
        handle.result()
    assert "\n" not in str(caught.value)
    assert next(iter(handle)).kind == "activity"


def test_start_refuses_active_run(tmp_path: Path) -> None:
    backend, _ = waiting_backend.copy_to(tmp_path)
    request = gold(tmp_path / "store", **{"sandbox.backend": backend})
    with swe_argo.start(request) as first:
        wait_for(lambda: any(event.kind == "planned" for event in first._events.copy()))
        with pytest.raises(swe_argo.ConfigError, match="is being worked on by process"):
            swe_argo.start(request).result()
        first.cancel()
