"""Places of the units' semaphore that a shard kept when it ended."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.argo.semaphores import LOCK, UNIT_TEMPLATE, move_holds_to_parent
from tests.steps.argo.api_server import Api, serving
from tests.steps.argo.test_shards import shard
from tests.workflows.pipeline.rendered import committed

RUN, PARENT, CHILD = "r", "evaluate-1", "evaluate-1-s00000"


def unit(name: str, finished: str | None) -> dict[str, Any]:
    return {"id": f"{CHILD}-{name}", "templateName": UNIT_TEMPLATE, "type": "DAG", "finishedAt": finished}


def ended(api: Api, phase: str) -> None:
    """A shard that ended at 10:03:00, with a unit long done, one that ended with it, and one that never ended."""
    body = shard(0, phase, run=RUN, parent=PARENT)
    units = [unit("1", "2026-11-22T10:01:00Z"), unit("2", "2026-11-22T10:03:00Z"), unit("3", None)]
    solve = {**unit("4", None), "templateName": "solve"}
    body["status"] |= {"finishedAt": "2026-11-22T10:03:00Z", "nodes": {item["id"]: item for item in [*units, solve]}}
    mutex = {"holding": [{"mutex": "m", "holder": "h"}]}
    own = {"kind": "Workflow", "metadata": {"name": PARENT, "labels": {}}, "status": {"synchronization": mutex}}
    api.add(body, own)


def test_run_takes_locks_of_failed_shard() -> None:
    with serving() as api:
        ended(api, "Failed")
        assert move_holds_to_parent(api.cluster(), RUN, PARENT) == [CHILD]
        (lock_list,) = api.objects["workflows", PARENT]["status"]["synchronization"].values()
        assert lock_list == {
            "holding": [
                {"semaphore": f"evals/{LOCK}", "holders": [f"evals/{CHILD}/{CHILD}-{number}"]} for number in (2, 3)
            ]
        }


def test_succeeded_shards_keep_no_locks() -> None:
    with serving() as api:
        ended(api, "Succeeded")
        assert move_holds_to_parent(api.cluster(), RUN, PARENT) == []
        assert api.changed("PATCH") == []


def test_deleted_run_takes_no_locks() -> None:
    with serving() as api:
        ended(api, "Failed")
        del api.objects["workflows", PARENT]
        assert move_holds_to_parent(api.cluster(), RUN, PARENT) == [CHILD]


def test_semaphore_matches_template() -> None:
    (place,) = committed().template(UNIT_TEMPLATE)["synchronization"]["semaphores"]
    reference = place["configMapKeyRef"]
    assert f"ConfigMap/{reference['name']}/{reference['key']}" == LOCK
