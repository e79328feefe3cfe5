"""An API server that was just started answers before it knows roles and accounts; who has no right is told so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("kubernetes")

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.sandbox.kubernetes.exec import Exec
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod
from swe_argo.steps.sandbox.kubernetes.pods import Pods
from tests.steps.sandbox.kubernetes.channels import Line, serving
from tests.steps.sandbox.kubernetes.statuses import READY

POD = READY | {"metadata": {"name": "sb-1", "uid": "u-1", "resourceVersion": "7"}}
PATIENCE = RetryPolicy(total_s=20, first_s=0.01, longest_s=0.05, rights_s=10)
BRIEF = RetryPolicy(total_s=20, first_s=0.01, longest_s=0.05, rights_s=0.2)
FORBIDDEN = 'pods "sb-1" is forbidden: User "runner" cannot get resource "pods" in API group "" in the namespace "n"'
NOT_READY = 'pods "sb-1" is forbidden: not yet ready to handle request'
EARLY = [(403, FORBIDDEN), (401, "Unauthorized"), (403, NOT_READY)]


@contextmanager
def box(early: int, refusal: tuple[int, str], patience: RetryPolicy) -> Iterator[tuple[KubernetesPod, Pods]]:
    """A pod of a server that refuses so many requests so, and does from then on what it is asked."""
    refused: list[str] = []

    def play(line: Line) -> None:
        if len(refused) < early:
            refused.append(line.head)
            line.answer(refusal[0], {"kind": "Status", "message": refusal[1], "code": refusal[0]})
        elif "/exec?" in line.head:
            line.accept()
            line.say(1, b"done")
            line.end({"status": "Success"})
        elif "watch=true" in line.head:
            line.answer(200, {"type": "MODIFIED", "object": POD})
        else:
            line.answer(200, POD)

    with serving(play) as cluster:
        cluster.configuration.retries = False
        pods = Pods(cluster, patience)
        yield KubernetesPod(pods, Exec(cluster, "sb-1"), POD, patience), pods


REQUESTS: dict[str, Callable[[KubernetesPod, Pods], object]] = {
    "exec": lambda pod, _: pod.short_exec("true"),
    "look": lambda pod, _: pod.check(),
    "make": lambda _, pods: pods.make(POD),
    "remove": lambda _, pods: pods.remove("sb-1", "u-1"),
    "watch": lambda _, pods: list(pods.changes(POD, 1)),
}


@pytest.mark.parametrize("refusal", EARLY, ids=["role", "account", "rules"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_early_refusal_is_retried(request_: str, refusal: tuple[int, str]) -> None:
    with box(9, refusal, PATIENCE) as (pod, pods):
        REQUESTS[request_](pod, pods)


@pytest.mark.parametrize("refusal", EARLY[:2], ids=["role", "account"])
@pytest.mark.parametrize("request_", ["exec", "look", "remove", "watch"])
def test_lasting_refusal_is_config_error(request_: str, refusal: tuple[int, str]) -> None:
    with (
        box(1000, refusal, BRIEF) as (pod, pods),
        pytest.raises(ConfigError, match=r"runner may not get|rejected the credentials"),
    ):
        REQUESTS[request_](pod, pods)
