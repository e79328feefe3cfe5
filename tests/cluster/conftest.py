"""What tests on a real cluster share: the cluster itself, and a loaded image to make sandboxes of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.images import load_sandbox_image
from tests.cluster.installed_chart import InstalledChart, prepared
from tests.cluster.lab import KubernetesLab, laboratory
from tests.cluster.mini import load_mini_images
from tests.cluster.outside import outside_host
from tests.cluster.real_cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of a cluster time: they wait for states, on a machine that may do something else as well."""
    for item in items:
        if item.get_closest_marker("cluster") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster whose kubeconfig SWE_ARGO_TEST_CLUSTER names; skips where it names none."""
    kubeconfig = os.environ.get("SWE_ARGO_TEST_CLUSTER")
    if not kubeconfig:
        pytest.skip("no cluster: make test-cluster-long")
    if not Path(kubeconfig).is_file():
        pytest.fail(f"SWE_ARGO_TEST_CLUSTER={kubeconfig} is no file; `cluster/local/cluster up` writes it")
    return Cluster(Path(kubeconfig).resolve())


@pytest.fixture(scope="session")
def sandbox_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image on the node: bash, coreutils, git, patch, python3 with pytest; a checkout with hello.txt at /testbed."""
    return load_sandbox_image(cluster, tmp_path_factory.mktemp("sandbox-image"))


@pytest.fixture(scope="module")
def lab(cluster: Cluster, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesLab]:
    """A namespace of its own where sandboxes are made."""
    with laboratory(cluster, sandbox_image, tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def outside(cluster: Cluster) -> Iterator[str]:
    """The address of a host outside of this machine and the cluster, which answers HTTP on port 80."""
    if os.getuid() != 0:
        pytest.skip("a host outside is a network namespace, which takes root")
    with outside_host() as address:
        yield address


@pytest.fixture(scope="session")
def mini_images(cluster: Cluster) -> None:
    """The images of mini on the node."""
    load_mini_images(cluster)


@pytest.fixture(scope="session")
def installed(
    cluster: Cluster, mini_images: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstalledChart]:
    """A namespace with the chart, mini's images on the node, and the kubeconfig of who may make sandboxes there."""
    with prepared(cluster, tmp_path_factory.mktemp("installed")) as installed:
        yield installed
