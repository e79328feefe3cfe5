"""What the pods of a run reach and what reaches them, each denial beside the same connection of an ordinary pod."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.argo.pipeline import S3
from tests.cluster.images import load_sandbox_image
from tests.cluster.real_cluster import Cluster
from tests.cluster.release import Release, installed, plain_pod
from tests.cluster.test_network import GRADE, OPEN, SANDBOXES, SOLVE, Side
from tests.workflows.command import wait_for

STEP, NEIGHBOUR = "step", "neighbour"
REACHED = ("API server, by its Service", "API server, by its address", "DNS over UDP", "DNS over TCP", "S3")
DENIED = ("another pod",)
ENDPOINT = f"aws.s3.endpoint=http://{S3[0]}:{S3[1]}"
Targets = dict[str, tuple[str, str, int]]


@pytest.fixture(scope="module")
def side(argo_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """The chart, a step, a neighbour, and sandboxes that are labelled as steps too; each listens on 8080."""
    image = load_sandbox_image(argo_cluster, tmp_path_factory.mktemp("image"))
    values = ["--set", "aws.s3.bucket=runs", "--set", "image.repository=localhost/steps", "--set", ENDPOINT]
    with installed(argo_cluster, tmp_path_factory.mktemp("ways"), *values) as release:
        chart_side = Side(release)
        boxes = (("solve", False), ("grade", False), ("grade", True))
        chart_side.populate(
            plain_pod(STEP, image, **{"swe-argo/step": "solve"}),
            plain_pod(NEIGHBOUR, image),
            *(release.sandbox(image, role=role, network=network) for role, network in boxes),
        )
        # Admission would refuse the label, which is the other half of this.
        release.kubectl("delete", "validatingadmissionpolicybinding", f"swe-argo-sandboxes-{release.namespace}")
        for name in SANDBOXES:
            wait_for(lambda name=name: _labelled(release, name))  # type: ignore[misc]
        yield chart_side


def _labelled(release: Release, name: str) -> bool:
    words = ["-n", release.namespace, "label", "pod", name, "swe-argo/step=solve"]
    return release.cluster.try_kubectl(*words).returncode == 0


@pytest.fixture(scope="module")
def targets(argo_cluster: Cluster, side: Side) -> Targets:
    def get(*words: str) -> str:
        return argo_cluster.kubectl("get", *words)

    dns = get("service", "kube-dns", "-n", "kube-system", "-o", "jsonpath={.spec.clusterIP}")
    api = get("service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
    slices = json.loads(get("endpointslice", "kubernetes", "-n", "default", "-o", "json"))
    addresses = [
        ("tcp", api, 443),
        ("tcp", slices["endpoints"][0]["addresses"][0], slices["ports"][0]["port"]),
        ("udp", dns, 53),
        ("tcp", dns, 53),
        ("tcp", *S3),
        ("tcp", side.address(NEIGHBOUR), 8080),
    ]
    return dict(zip((*REACHED, *DENIED), addresses, strict=True))


def test_step_reaches_only_what_it_needs(side: Side, targets: Targets) -> None:
    assert side.reaches(STEP, targets) == {**dict.fromkeys(REACHED, True), **dict.fromkeys(DENIED, False)}
    assert side.reaches(NEIGHBOUR, targets) == dict.fromkeys(targets, True)


@pytest.mark.parametrize("name", [SOLVE, GRADE])
def test_mislabelled_sandbox_is_isolated(side: Side, targets: Targets, name: str) -> None:
    assert side.reaches(name, targets) == dict.fromkeys(targets, False)


def test_mislabelled_sandbox_has_only_dns(side: Side, targets: Targets) -> None:
    dns = ("DNS over UDP", "DNS over TCP")
    assert side.reaches(OPEN, targets) == {name: name in dns for name in targets}


def test_step_is_unreachable(side: Side) -> None:
    step = {"step": ("tcp", side.address(STEP), 8080)}
    assert side.reaches(NEIGHBOUR, step) == {"step": False}
    side.release.kubectl("delete", "networkpolicy", "swe-argo-steps")
    assert side.reaches(NEIGHBOUR, step) == {"step": True}
