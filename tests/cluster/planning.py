"""A cluster asked as plan asks it, before anything is made there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.readiness import look
from swe_argo.steps.sandbox.readiness import ReadinessResult, SandboxNeeds
from tests.cluster.accounts import reached
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import swe_argo

GRADE = SandboxNeeds(images=["localhost/x:1"], acts=False, solves=False, grading_network=True, timeout_s=1800)
ACT = replace(GRADE, acts=True, solves=True)


@contextmanager
def temporary_object(
    cluster: Cluster, namespace: str, kind: str, name: str, api: str = "v1", **body: Any
) -> Iterator[None]:
    """Such an object in the namespace."""
    whole = {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **body}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(whole))
    try:
        yield
    finally:
        cluster.kubectl("delete", kind, name, "-n", namespace)


def check_readiness(kubeconfig: Path, namespace: str, needs: SandboxNeeds = GRADE, **spec: Any) -> ReadinessResult:
    return look(reached(kubeconfig, namespace), SandboxSpec(backend="kubernetes", **spec), needs)


def refusal(kubeconfig: Path, namespace: str, needs: SandboxNeeds = GRADE, **spec: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        check_readiness(kubeconfig, namespace, needs, **spec)
    assert "\n" not in refused.value.reason
    return refused.value.reason


def refused_run(cluster: Cluster, namespace: str, folder: Path, *words: str, kubeconfig: Path | None = None) -> str:
    """What ``swe-argo run WORDS`` says in its one line. Nothing is made, here or there."""
    store = folder / "store"
    gold = ("run", "--backend", "kubernetes", "--dataset", "mini", "--agent", "gold", "--store", str(store))
    namespace_words = () if "--namespace" in words else ("--namespace", namespace)
    environment = cluster.environment | {"KUBECONFIG": str(kubeconfig or cluster.kubeconfig)}
    result = swe_argo(*gold, *namespace_words, *words, env=environment)
    assert result.returncode == 64, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not [path for path in store.rglob("*") if path.is_file()]
    assert cluster.kubectl("get", "pods,leases", "-n", namespace, "-o", "name") == ""
    return result.stderr
