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
from swe_argo.workflows.argo.status_display import status_line

SEEN = Path(__file__).parent / "seen"


def seen(name: str) -> dict[str, Any]:
    return dict(json.loads((SEEN / f"{name}.json").read_text()))


def test_a_run_that_ended_well() -> None:
    view = run_status.read_run(seen("parent"))
    assert (view.phase, view.stage, view.reported, view.stopping) == ("Succeeded", "succeeded", True, False)
    assert view.planned == "4 units to do, 0 done before"
    assert view.shards == {"00000": "Succeeded"}


def test_a_run_that_works() -> None:
    view = run_status.read_run(seen("working"))
    assert (view.stage, view.has_ended, view.reported) == ("working", False, False)


def test_a_run_that_was_stopped_has_the_report_of_its_exit_handler() -> None:
    view = run_status.read_run(seen("stopped"))
    assert (view.phase, view.stopping, view.reported, view.result) == ("Failed", True, True, "resolved 0 of 2")


def test_a_shards_units_are_counted_by_what_they_came_to() -> None:
    view = run_status.read_shard(seen("shard"))
    assert (view.number, view.phase, view.total, view.done_units) == ("00000", "Succeeded", 4, 4)
    assert view.outcomes == Counter(resolved=4)
    assert view.retries == 0


def test_units_whose_steps_wait_for_a_retry_are_at_work() -> None:
    view = run_status.read_shard(seen("failing"))
    assert (view.total, view.done_units, len(view.running)) == (3, 0, 3)
    assert "mini-gridprint-1" in view.running


def test_a_unit_that_failed_for_good_has_no_verdict_and_its_tries_are_counted() -> None:
    workflow = seen("failing")
    found = workflow["status"]["nodes"]
    unit = next(each for each in found.values() if each["displayName"] == "mini-gridprint-1")
    step = next(each for each in found.values() if each.get("boundaryID") == unit["id"] and each["type"] == "Retry")
    first = found[step["children"][0]]
    second = first | {"id": first["id"] + "x"}
    found[second["id"]] = second
    step["children"].append(second["id"])
    for each in (unit, step):
        each["phase"] = "Failed"
    view = run_status.read_shard(workflow)
    assert view.failures == Counter({"no verdict": 1})
    assert (view.done_units, view.retries, len(view.running)) == (1, 1, 2)


def test_nodes_that_argo_compressed_are_unpacked() -> None:
    workflow = seen("shard")
    packed = base64.b64encode(gzip.compress(json.dumps(workflow["status"].pop("nodes")).encode())).decode()
    workflow["status"]["compressedNodes"] = packed
    assert run_status.read_shard(workflow) == run_status.read_shard(seen("shard"))


def test_a_plan_that_refused_the_wish_is_told_in_its_own_words() -> None:
    workflow = seen("parent")
    found = workflow["status"]["nodes"]
    for name in [name for name, each in found.items() if each.get("templateName") != "plan"]:
        if found[name]["type"] != "DAG":
            del found[name]
    for each in found.values():
        each["phase"] = "Failed"
        if each["type"] == "Pod":
            each["message"] = "main: Error (exit code 64): plan: dataset: unknown dataset 'verifed'"
            each["outputs"] = {"exitCode": "64"}
    workflow["status"]["phase"] = "Failed"
    view = run_status.read_run(workflow)
    assert (view.exit_code, view.message) == (64, "plan: dataset: unknown dataset 'verifed'")


def test_a_workflow_that_waits_says_for_what() -> None:
    view = run_status.read_run(
        {"metadata": {"name": "r"}, "status": {"phase": "Pending", "message": "Waiting for the lock"}}
    )
    assert view.stage == "pending: Waiting for the lock"
    assert run_status.read_run({"metadata": {"name": "r"}}).stage == "pending"


def test_a_shard_that_was_cleaned_up_keeps_its_size() -> None:
    planned = "120 units to do, 3 done before"
    sizes = [run_status.cleaned_up(f"{number:05}", "Succeeded", planned).done_units for number in range(4)]
    assert sizes == [44, 44, 32, 0]


def test_a_line_tells_it_all() -> None:
    text = status_line(run_status.read_run(seen("working")), [run_status.read_shard(seen("failing"))])
    assert text == (
        "working, shards 0/1, units 0/3, running 3, "
        "3 x solve is tried again after a failure: solve: IsADirectoryError: [Errno 21] Is a directory: "
        "'/in/recording.json'"
    )


@pytest.mark.parametrize(
    ("node", "said"),
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
def test_what_the_canary_says_is_shown(node: dict[str, Any], said: str) -> None:
    canary = {"id": "w-1", "name": "w.canary", "templateName": "canary", "type": "Pod", **node}
    view = run_status.read_run({"metadata": {"name": "w"}, "status": {"phase": "Running", "nodes": {"w-1": canary}}})
    assert said in view.canary
    assert bool(view.canary) is bool(said)
    line = status_line(view, [])
    assert line.endswith(said)
