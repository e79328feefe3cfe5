"""Places of the units' semaphore that a shard kept when it ended."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.argo.semaphores import LOCK, UNIT, hand_over
from tests.steps.argo.api_server import Api, serving
from tests.steps.argo.test_shards import shard
from tests.workflows.pipeline.rendered import committed

RUN, PARENT, CHILD = "r", "evaluate-1", "evaluate-1-s00000"


def unit(name: str, finished: str | None) -> dict[str, Any]:
    return {"id": f"{CHILD}-{name}", "templateName": UNIT, "type": "DAG", "finishedAt": finished}


def ended(api: Api, phase: str) -> None:
    """A shard that ended at 10:03:00, with a unit long done, one that ended with it, and one that never ended."""
    made = shard(0, phase, run=RUN, parent=PARENT)
    units = [unit("1", "2026-11-22T10:01:00Z"), unit("2", "2026-11-22T10:03:00Z"), unit("3", None)]
    solve = {**unit("4", None), "templateName": "solve"}
    made["status"] |= {"finishedAt": "2026-11-22T10:03:00Z", "nodes": {each["id"]: each for each in [*units, solve]}}
    mutex = {"holding": [{"mutex": "m", "holder": "h"}]}
    own = {"kind": "Workflow", "metadata": {"name": PARENT, "labels": {}}, "status": {"synchronization": mutex}}
    api.add(made, own)


def test_the_run_takes_over_what_may_be_kept_each_in_a_list_of_its_own() -> None:
    with serving() as api:
        ended(api, "Failed")
        assert hand_over(api.cluster(), RUN, PARENT) == [CHILD]
        (held,) = api.objects["workflows", PARENT]["status"]["synchronization"].values()
        assert held == {
            "holding": [
                {"semaphore": f"evals/{LOCK}", "holders": [f"evals/{CHILD}/{CHILD}-{number}"]} for number in (2, 3)
            ]
        }


def test_a_run_whose_shards_succeeded_takes_over_nothing() -> None:
    with serving() as api:
        ended(api, "Succeeded")
        assert hand_over(api.cluster(), RUN, PARENT) == []
        assert api.changed("PATCH") == []


def test_a_run_that_is_gone_holds_nothing() -> None:
    with serving() as api:
        ended(api, "Failed")
        del api.objects["workflows", PARENT]
        assert hand_over(api.cluster(), RUN, PARENT) == [CHILD]


def test_the_lock_is_the_one_that_units_take() -> None:
    (place,) = committed().template(UNIT)["synchronization"]["semaphores"]
    reference = place["configMapKeyRef"]
    assert f"ConfigMap/{reference['name']}/{reference['key']}" == LOCK
