"""The cluster's command, on a cluster that is up."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.cluster.real_cluster import Cluster

pytestmark = pytest.mark.cluster

PARTS = "etcd kube-apiserver containerd netpol kube-controller-manager kube-scheduler kubelet kube-proxy"


@pytest.fixture(autouse=True)
def of_our_own_programs(cluster: Cluster) -> None:
    if not (cluster.state / "run").is_dir():
        pytest.skip("this cluster is kind's")


def test_status_names_parts_and_node(cluster: Cluster) -> None:
    result = cluster.command("status")
    assert result.returncode == 0, result.stderr
    for part in PARTS.split():
        assert f"\n{part} " in f"\n{result.stdout}"
    assert "node0   Ready" in result.stdout


def test_up_again_restarts_nothing(cluster: Cluster) -> None:
    before = {path.name: path.read_text() for path in (cluster.state / "run").iterdir()}
    result = cluster.command("up")
    assert result.returncode == 0, result.stderr
    assert {path.name: path.read_text() for path in (cluster.state / "run").iterdir()} == before


def test_env_prints_shell_exports(cluster: Cluster) -> None:
    lines = cluster.command("env").stdout.splitlines()
    assert lines == [f"export KUBECONFIG={cluster.kubeconfig}", f'export PATH={cluster.state}/bin:"$PATH"']


def test_load_refuses_what_is_no_image(cluster: Cluster, tmp_path: Path) -> None:
    empty = tmp_path / "empty.tar"
    with tarfile.open(empty, "w") as tar:
        tar.addfile(tarfile.TarInfo("hello"), io.BytesIO())
    for argument, expected in ((empty, "no image with a name"), ("no-such-image:1", "neither an archive nor an image")):
        result = cluster.command("load", str(argument))
        assert (result.returncode, result.stdout) == (64, "")
        assert str(argument) in result.stderr
        assert expected in result.stderr


def test_loaded_image_is_on_the_node(cluster: Cluster, sandbox_image: str) -> None:
    assert sandbox_image in cluster.images()
    assert (cluster.state / "images" / f"{sandbox_image.replace('/', '_')}.tar").is_file()


def test_bare_account_sees_nothing(cluster: Cluster) -> None:
    with cluster.namespace("local") as namespace:
        account = ["auth", "can-i", "list", "pods", "-n", namespace]
        account += ["--as", f"system:serviceaccount:{namespace}:default"]
        assert cluster.try_kubectl(*account).stdout == "no\n"
        assert cluster.try_kubectl(*account[:-2]).stdout == "yes\n"
