"""Argo Workflows on the cluster of one machine."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from tests.cluster.real_cluster import Cluster
from tests.workflows.command import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.argo]

SERVER = "http://10.244.0.1:9046"


@pytest.fixture(autouse=True)
def with_argo(cluster: Cluster) -> None:
    if not (cluster.state / "argo").is_dir():
        pytest.skip("no Argo on this cluster: make argo-binaries, then cluster/local/cluster argo")


def test_status_names_the_controller(cluster: Cluster) -> None:
    assert "\nworkflow-controller      pid " in cluster.command("status").stdout


def test_argo_again_restarts_nothing(cluster: Cluster) -> None:
    before = {path.name: path.read_text() for path in (cluster.state / "run").iterdir()}
    result = cluster.command("argo")
    if "lacks" in result.stderr:
        pytest.skip(result.stderr)
    assert result.returncode == 0, result.stderr
    assert {path.name: path.read_text() for path in (cluster.state / "run").iterdir()} == before


def test_argo_server_enforces_rbac(cluster: Cluster) -> None:
    if not (cluster.state / "bin" / "argo").exists():
        pytest.skip("ARGO_HOME had no argo, so there is no argo-server")
    with cluster.namespace("argo") as namespace:
        for words in (
            "serviceaccount reader",
            "role reader --verb=list --resource=workflows.argoproj.io",
            f"rolebinding reader --role=reader --serviceaccount={namespace}:reader",
        ):
            cluster.kubectl("-n", namespace, "create", *words.split())
        token = cluster.kubectl("-n", namespace, "create", "token", "reader").strip()
        wait_for(lambda: _status_of(f"workflows/{namespace}", token) == 200)  # the API server learns of roles late
        assert _status_of("workflows/kube-system", token) == 403
        assert _status_of(f"workflows/{namespace}", "") == 401


def _status_of(path: str, token: str) -> int:
    request = urllib.request.Request(f"{SERVER}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
