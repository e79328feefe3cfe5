"""What tests on a real Argo share: a cluster that has it, and the pipeline installed there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from swe_argo.steps.settings import settings
from tests.argo.disturbances import Weather
from tests.argo.image import load_pipeline_image
from tests.argo.pipeline import S3, Pipeline, installed
from tests.broken_s3 import Way, breakable
from tests.cluster.conftest import cluster, mini_images
from tests.cluster.real_cluster import Cluster

__all__ = ["cluster", "mini_images"]

PROVIDER = "sandbox-provider"
"""Secret with the keys of the provider of sandboxes, in those tests that have one."""
PORTS = range(9060, 9090)
"""Of this machine's ports, among those that pods of cluster/local reach."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/argo/" in item.path.as_posix():
            item.add_marker(pytest.mark.argo)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def argo_cluster(cluster: Cluster) -> Cluster:
    """A cluster whose Argo answers; skips with the reason where there is none."""
    if "workflowtemplates" not in cluster.kubectl("api-resources", "--api-group=argoproj.io", "-o", "name"):
        pytest.skip("this cluster has no Argo Workflows: make argo-binaries, then cluster/local/cluster argo")
    if (cluster.state / "run").is_dir() and "\nworkflow-controller      pid" not in cluster.command("status").stdout:
        pytest.skip("this cluster's workflow controller does not run: cluster/local/cluster up")
    return cluster


@pytest.fixture(scope="session")
def s3_way(argo_cluster: Cluster) -> Iterator[Way]:
    """The way to S3 of every pod of these tests; a test may break it."""
    with socket.socket() as probe:
        probe.settimeout(5)
        if probe.connect_ex(S3):
            pytest.skip(f"no S3 server answers at {S3[0]}:{S3[1]}: cluster/local has one")
    with breakable(S3[0], free_port(), S3) as way:
        yield way


def free_port() -> int:
    """One that nobody listens on."""
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex((S3[0], port)):
                return port
    raise AssertionError(f"no port of {PORTS} is free")


@pytest.fixture(scope="session")
def pipeline(argo_cluster: Cluster, mini_images: None, s3_way: Way) -> Iterator[Pipeline]:
    """The chart in a fresh namespace, with a bucket; the images of the steps and of mini on the node."""
    load_pipeline_image(argo_cluster)
    with pytest.MonkeyPatch.context() as patch:
        variables = {
            "AWS_ENDPOINT_URL_S3": f"http://{S3[0]}:{S3[1]}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        settings.cache_clear()
        # Steps reach the models and the provider of sandboxes of these tests, too.
        boxes = f"sandbox.credentials.existingSecret={PROVIDER}"
        way = [boxes, f"network.allow[0].cidr={S3[0]}/32", f"network.allow[0].ports={{{PORTS[0]}-{PORTS[-1]}}}"]
        with installed(
            argo_cluster, s3_way.url, *(word for setting in way for word in ("--set", setting))
        ) as chart_pipeline:
            yield chart_pipeline
    settings.cache_clear()


@pytest.fixture
def use_kubeconfig(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is the kubeconfig's; a flag names the pipeline's namespace, as a person would."""
    monkeypatch.setenv("KUBECONFIG", pipeline.cluster.environment["KUBECONFIG"])
    monkeypatch.delenv("ARGO_SERVER", raising=False)


@pytest.fixture(scope="session")
def weather(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Weather:
    """The runs that tests disturb, and what an undisturbed one comes to."""
    return Weather(pipeline, tmp_path_factory.mktemp("weather"))
