from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from swe_argo.steps.argo import shards, step_pods
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.kube.client import RetryPolicy
from tests.steps.argo.api_server import Api, serving

RUN, PARENT = "nightly", "nightly-abc"


def shard(number: int, phase: str, run: str = RUN, parent: str = PARENT) -> dict[str, Any]:
    """A shard's Workflow; phase "" for one that nobody has looked at yet."""
    done = {"workflows.argoproj.io/completed": "true"} if phase in ("Succeeded", "Failed", "Error") else {}
    known = {"workflows.argoproj.io/phase": phase} if phase else {}
    labels = {"swe-argo/run": run, "swe-argo/kind": "shard", "swe-argo/parent": parent, **known, **done}
    meta = {"name": f"{parent}-s{number:05d}", "labels": labels}
    return {"kind": "Workflow", "metadata": meta, "spec": {}, "status": {"phase": phase} if phase else {}}


def pod(name: str, step: str, phase: str = "Running", run: str = RUN, workflow: str = "") -> dict[str, Any]:
    """The pod of a step."""
    labels = {"swe-argo/run": run, "swe-argo/step": step, "workflows.argoproj.io/workflow": workflow}
    return {"kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"phase": phase}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that is missing is asked for again, but not for long."""
    monkeypatch.setattr(shards, "PATIENCE", RetryPolicy(total_s=60, rights_s=0.2))


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        yield api


def stop(api: Api, patience_s: float = 20) -> list[str]:
    return shards.stop_shards(api.cluster(), RUN, PARENT, patience_s=patience_s, pause_s=0.05)


def end(api: Api, patience_s: float = 10) -> list[str]:
    return step_pods.end_step_pods(api.cluster(), RUN, patience_s=patience_s, pause_s=0.05)


def test_shards_that_have_not_ended_are_stopped_and_no_others(api: Api) -> None:
    api.add(shard(0, "Succeeded"), shard(1, "Running"), shard(2, "Failed"), shard(3, "Running"))
    api.add(shard(4, "Running", run="other"), shard(5, "Running", parent="nightly-xyz"))
    assert stop(api) == [f"{PARENT}-s00001", f"{PARENT}-s00003"]
    assert api.changed("PATCH") == [f"{PARENT}-s00001", f"{PARENT}-s00003"]
    assert api.objects["workflows", f"{PARENT}-s00001"]["spec"] == {"shutdown": "Stop"}


def test_a_shard_that_waits_for_its_turn_is_ended_too(api: Api) -> None:
    api.add(shard(0, "Pending"), shard(1, ""))
    assert len(stop(api)) == 2
    assert {each["spec"]["shutdown"] for each in api.objects.values()} == {"Terminate"}


def test_with_nothing_to_stop_one_question_is_enough(api: Api) -> None:
    api.add(shard(0, "Succeeded"), shard(1, "Failed"))
    assert stop(api) == []
    assert [how for how, *_ in api.asked] == ["GET"]


def test_shards_that_do_not_end_are_told_of() -> None:
    with serving(controller=False) as api:
        api.add(shard(0, "Running"), shard(1, "Running"))
        with pytest.raises(InfraError, match=r"2 of the run's shards have not ended .*workflow-controller running\?"):
            stop(api, patience_s=0.3)
        assert len(api.changed("PATCH")) == 2  # each once


def test_an_api_server_that_hiccups_is_asked_again(api: Api) -> None:
    api.add(shard(0, "Running"))
    api.busy, api.away = 2, 1
    assert stop(api) == [f"{PARENT}-s00000"]


def test_without_the_right_the_account_and_the_right_are_named() -> None:
    with (
        serving(forbidden=("workflows",)) as api,
        pytest.raises(ConfigError, match=r"evals:one may not list workflows"),
    ):
        stop(api)


def test_only_what_did_not_succeed_is_read_whole(api: Api) -> None:
    api.add(*(shard(n, "Succeeded") for n in range(4)), *(shard(n, "Failed") for n in range(4, 9)))
    found = list(shards.failed_shards(api.cluster(), RUN, PARENT))
    assert [each["metadata"]["name"] for each in found] == [f"{PARENT}-s{n:05d}" for n in range(4, 9)]
    assert all("status" in each for each in found)


def test_the_parent_may_be_gone(api: Api) -> None:
    api.add(shard(0, "Failed"))
    assert shards.read_parent(api.cluster(), "gone") is None
    assert shards.read_parent(api.cluster(), f"{PARENT}-s00000") is not None


def test_pods_of_steps_are_waited_for_and_deleted_when_they_do_not_end(api: Api) -> None:
    api.add(pod("a", "solve"), pod("b", "grade", "Succeeded"), pod("c", "list", "Pending"), pod("d", "finalize"))
    api.add(pod("e", "solve", run="other"))
    assert end(api, patience_s=0.2) == ["a", "c"]
    assert api.names("pods") == ["b", "d", "e"]


def test_with_no_pod_left_nothing_is_deleted(api: Api) -> None:
    api.add(pod("a", "solve", "Failed"))
    assert end(api) == []
    assert len(api.asked) == 1


def test_an_api_server_that_stays_away_is_the_engines_failure(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PATIENCE", RetryPolicy(total_s=0.2, first_s=0.05))
    api.busy = 1000
    with pytest.raises(InfraError, match=f"reading Workflow {PARENT}") as caught:
        shards.read_parent(api.cluster(), PARENT)
    assert caught.value.failure_class is FailureClass.ENGINE
