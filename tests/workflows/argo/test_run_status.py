"""What is read out of statuses that a controller wrote."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from swe_argo.workflows.argo import run_status
from swe_argo.workflows.argo.run_status import count_waits
from swe_argo.workflows.argo.watch import render_screen, status_line

PULL = 'ImagePullBackOff: Back-off pulling image "registry/steps:2"'
FULL = 'pods "r-plan-1" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4'


def pod(step: str, phase: str, message: str = "", name: str = "p") -> dict[str, Any]:
    return {"id": name, "type": "Pod", "templateName": step, "phase": phase, "message": message}


def top(step: str, phase: str, *children: str) -> dict[str, Any]:
    return {"id": "top", "type": "Retry", "templateName": step, "phase": phase, "children": list(children)}


def workflow(*nodes: dict[str, Any], phase: str = "Running", **status: Any) -> dict[str, Any]:
    whole = {"phase": phase, "nodes": {node["id"]: node for node in nodes}, **status}
    return {"metadata": {"name": "r-1", "labels": {}}, "status": whole}


@pytest.mark.parametrize("message", [PULL, FULL, "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."])
def test_pending_pod_states_reason(message: str) -> None:
    view = run_status.read_run(workflow(top("plan", "Running", "p"), pod("plan", "Pending", message)))
    assert list(view.waits) == [f"the pod of plan waits: {message}"]
    assert status_line(view, []) == f"planning, the pod of plan waits: {message}"


@pytest.mark.parametrize("message", ["", "PodInitializing", "ContainerCreating"])
def test_starting_pod_counts_as_no_wait(message: str) -> None:
    assert not run_status.read_run(workflow(pod("plan", "Pending", message))).waits


def test_retried_step_states_reason() -> None:
    why = "main: Error (exit code 75): plan: the endpoint http://m does not answer"
    nodes = [top("plan", "Running", "a", "b"), pod("plan", "Failed", "x", "a"), pod("plan", "Failed", why, "b")]
    view = run_status.read_run(workflow(*nodes))
    assert list(view.waits) == ["plan is retried after 2 failures: plan: the endpoint http://m does not answer"]


def test_running_step_counts_as_no_wait() -> None:
    again = [top("plan", "Running", "a", "b"), pod("plan", "Failed", "x", "a"), pod("plan", "Running", "", "b")]
    over = [top("plan", "Failed", "a"), pod("plan", "Failed", "x", "a")]
    assert not run_status.read_run(workflow(*again)).waits
    assert not run_status.read_run(workflow(*over)).waits


def test_lock_wait_names_holders() -> None:
    holders = ["evals/night-1-s00000", "evals/night-1-s00001", "evals/other-s00000", "evals/more-s00000"]
    waiting = [{"semaphore": "evals/ConfigMap/swe-argo-limits/shards", "holders": holders}]
    waits = count_waits(workflow(phase="Pending", synchronization={"semaphore": {"waiting": waiting}}), {})
    assert list(waits) == [
        "waits for one of the chart's limits.shards places, held by night-1-s00000, night-1-s00001, "
        "other-s00000 and 1 more"
    ]
    mutex = {"mutex": {"waiting": [{"mutex": "evals/Mutex/swe-argo-r", "holder": "evals/r-0"}]}}
    view = run_status.read_run(workflow(phase="Pending", synchronization=mutex))
    assert list(view.waits) == ["waits for another Workflow of this run to end, held by r-0"]


def test_queued_units_are_not_listed() -> None:
    waiting = [{"semaphore": "evals/ConfigMap/swe-argo-limits/units", "holders": ["evals/r-s00000/r-s00000-1"]}]
    assert not count_waits(workflow(synchronization={"semaphore": {"waiting": waiting}}), {})


def test_equal_reasons_are_counted() -> None:
    shard = run_status.read_shard(workflow(*(pod("solve", "Pending", PULL, str(n)) for n in range(4))))
    run = run_status.read_run(workflow())
    assert status_line(run, [shard]).endswith(f"4 x the pod of solve waits: {PULL}")
    assert render_screen("r", run, [shard], "").renderables


def test_long_reason_is_cut() -> None:
    (reason,) = run_status.read_run(workflow(pod("plan", "Pending", "word " * 100))).waits
    assert reason.endswith("word ...")


SEEN = Path(__file__).parent / "seen"


def load_recorded(name: str) -> dict[str, Any]:
    return dict(json.loads((SEEN / f"{name}.json").read_text()))


def test_read_run_reads_success() -> None:
    view = run_status.read_run(load_recorded("parent"))
    assert (view.phase, view.stage, view.reported, view.stopping) == ("Succeeded", "succeeded", True, False)
    assert view.planned == "4 units to do, 0 done before"
    assert view.shards == {"00000": "Succeeded"}


def test_read_run_reads_running_workflow() -> None:
    view = run_status.read_run(load_recorded("working"))
    assert (view.stage, view.has_ended, view.reported) == ("working", False, False)


def test_read_run_reads_stopped_run() -> None:
    view = run_status.read_run(load_recorded("stopped"))
    assert (view.phase, view.stopping, view.reported, view.result) == ("Failed", True, True, "resolved 0 of 2")


def test_read_shard_counts_outcomes() -> None:
    view = run_status.read_shard(load_recorded("shard"))
    assert (view.number, view.phase, view.total, view.ended_units) == ("00000", "Succeeded", 4, 4)
    assert view.outcomes == Counter(resolved=4)
    assert view.retries == 0


def test_retried_units_count_as_running() -> None:
    view = run_status.read_shard(load_recorded("failing"))
    assert (view.total, view.ended_units, len(view.running)) == (3, 0, 3)
    assert "mini-gridprint-1" in view.running


def test_read_shard_counts_failures() -> None:
    workflow = load_recorded("failing")
    nodes = workflow["status"]["nodes"]
    unit = next(node for node in nodes.values() if node["displayName"] == "mini-gridprint-1")
    step = next(node for node in nodes.values() if node.get("boundaryID") == unit["id"] and node["type"] == "Retry")
    first = nodes[step["children"][0]]
    second = first | {"id": first["id"] + "x"}
    nodes[second["id"]] = second
    step["children"].append(second["id"])
    for node in (unit, step):
        node["phase"] = "Failed"
    view = run_status.read_shard(workflow)
    assert view.failures == Counter({"no verdict": 1})
    assert (view.ended_units, view.retries, len(view.running)) == (1, 1, 2)


def test_read_shard_unpacks_nodes() -> None:
    workflow = load_recorded("shard")
    packed = base64.b64encode(gzip.compress(json.dumps(workflow["status"].pop("nodes")).encode())).decode()
    workflow["status"]["compressedNodes"] = packed
    assert run_status.read_shard(workflow) == run_status.read_shard(load_recorded("shard"))


def test_read_run_reads_refused_plan() -> None:
    workflow = load_recorded("parent")
    nodes = workflow["status"]["nodes"]
    for name in [name for name, node in nodes.items() if node.get("templateName") != "plan"]:
        if nodes[name]["type"] != "DAG":
            del nodes[name]
    for node in nodes.values():
        node["phase"] = "Failed"
        if node["type"] == "Pod":
            node["message"] = "main: Error (exit code 64): plan: dataset: unknown dataset 'verifed'"
            node["outputs"] = {"exitCode": "64"}
    workflow["status"]["phase"] = "Failed"
    view = run_status.read_run(workflow)
    assert (view.exit_code, view.message) == (64, "plan: dataset: unknown dataset 'verifed'")


def test_read_run_states_pending_reason() -> None:
    view = run_status.read_run(
        {"metadata": {"name": "r"}, "status": {"phase": "Pending", "message": "Waiting for the lock"}}
    )
    assert view.stage == "pending: Waiting for the lock"
    assert run_status.read_run({"metadata": {"name": "r"}}).stage == "pending"


def test_cleaned_up_shard_keeps_its_size() -> None:
    planned = "120 units to do, 3 done before"
    sizes = [run_status.deleted_shard_view(f"{number:05}", "Succeeded", planned).ended_units for number in range(4)]
    assert sizes == [44, 44, 32, 0]


def test_status_line_shows_progress() -> None:
    text = status_line(run_status.read_run(load_recorded("working")), [run_status.read_shard(load_recorded("failing"))])
    assert text == (
        "working, shards 0/1, units 0/3, running 3, "
        "3 x solve is retried after a failure: solve: IsADirectoryError: [Errno 21] Is a directory: "
        "'/in/recording.json'"
    )


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            {"phase": "Succeeded", "outputs": {"parameters": [{"name": "outcome", "value": "all is well"}]}},
            "all is well",
        ),
        (
            {"phase": "Failed", "message": "main: Error (exit code 64): canary: not to be believed"},
            "not to be believed",
        ),
        ({"phase": "Skipped"}, ""),
    ],
)
def test_status_line_shows_canary(node: dict[str, Any], message: str) -> None:
    canary = {"id": "w-1", "name": "w.canary", "templateName": "canary", "type": "Pod", **node}
    view = run_status.read_run({"metadata": {"name": "w"}, "status": {"phase": "Running", "nodes": {"w-1": canary}}})
    assert message in view.canary
    assert bool(view.canary) is bool(message)
    line = status_line(view, [])
    assert line.endswith(message)
