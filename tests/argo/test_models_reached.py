"""A model in the cluster, behind a Service: the step that asks it gets there, its sandboxes do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.argo.test_ways import ENDPOINT, STEP
from tests.cluster.images import load_sandbox_image
from tests.cluster.real_cluster import Cluster
from tests.cluster.release import installed, plain_pod
from tests.cluster.test_network import GRADE, OPEN, SOLVE, Side

MODEL, OTHER = "vllm", "database"
Targets = dict[str, tuple[str, str, int]]
BY_SERVICE, BY_ADDRESS = "the model, by its Service", "the model, by its address"


@dataclass(frozen=True)
class Neighbours:
    """The chart's namespace, and in the models' own a model and something else; where each is."""

    side: Side
    targets: Targets


@pytest.fixture(scope="module")
def neighbours(argo_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    image = load_sandbox_image(argo_cluster, tmp_path_factory.mktemp("image"))
    with argo_cluster.namespace("models") as models:
        way = [f"network.allow[0].namespace={models}", f"network.allow[0].podLabels.app={MODEL}"]
        values = ["aws.s3.bucket=runs", "image.repository=localhost/steps", ENDPOINT, *way]
        flags = [word for value in (*values, "network.allow[0].ports={8080}") for word in ("--set", value)]
        with installed(argo_cluster, tmp_path_factory.mktemp("reached"), *flags) as release:
            side, models_side = Side(release), Side(replace(release, namespace=models))
            models_side.populate(*(plain_pod(name, image, app=name) for name in (MODEL, OTHER)))
            models_side.release.kubectl("expose", "pod", MODEL, "--port=8000", "--target-port=8080")
            boxes = (("solve", False), ("grade", False), ("grade", True))
            side.populate(
                plain_pod(STEP, image, **{"swe-argo/step": "solve"}),
                *(release.sandbox(image, role=role, network=network) for role, network in boxes),
            )
            service = models_side.release.kubectl("get", "service", MODEL, "-o", "jsonpath={.spec.clusterIP}")
            yield Neighbours(
                side,
                {
                    BY_SERVICE: ("tcp", service, 8000),
                    BY_ADDRESS: ("tcp", models_side.address(MODEL), 8080),
                    "something else": ("tcp", models_side.address(OTHER), 8080),
                },
            )


def test_step_reaches_only_the_model(neighbours: Neighbours) -> None:
    reached = neighbours.side.reaches(STEP, neighbours.targets)
    assert reached == {BY_SERVICE: True, BY_ADDRESS: True, "something else": False}


@pytest.mark.parametrize("box", [SOLVE, GRADE, OPEN])
def test_sandbox_reaches_no_model(neighbours: Neighbours, box: str) -> None:
    """Not even the one of tests that have network."""
    assert neighbours.side.reaches(box, neighbours.targets) == dict.fromkeys(neighbours.targets, False)
