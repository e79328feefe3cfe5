"""What a person changed in the cluster and what the values say, after ``helm upgrade``."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.charts.chart import CHART
from tests.cluster.real_cluster import Cluster
from tests.cluster.release import Release, installed, run_helm

VALUES = ("--set", "aws.s3.bucket=runs", "--set", "image.repository=localhost/steps")


@pytest.fixture
def release(argo_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with installed(argo_cluster, tmp_path_factory.mktemp("upgrade"), *VALUES, "--set=limits.units=40") as chart_release:
        yield chart_release


def upgraded(release: Release, *flags: str) -> str:
    """What Helm says after an upgrade with these values."""
    place = ["--namespace", release.namespace]
    result = run_helm(release.cluster, "upgrade", "mine", str(CHART), *place, *VALUES, *flags)
    assert result.returncode == 0, result.stderr
    return result.stdout


def limits(release: Release) -> dict[str, str]:
    data: dict[str, str] = json.loads(release.kubectl("get", "configmap", "swe-argo-limits", "-o", "json"))["data"]
    return data


def change(release: Release, **data: str) -> None:
    release.kubectl("patch", "configmap", "swe-argo-limits", "--type=merge", "-p", json.dumps({"data": data}))


def test_limit_changed_by_hand_is_kept(release: Release) -> None:
    before = limits(release)
    change(release, units="8")
    for _ in range(2):
        notes = upgraded(release, "--set=limits.units=40", "--set=retries=3")
        assert limits(release) == before | {"units": "8"}
        assert (
            "The limit of units was changed to 8 in the ConfigMap, which takes precedence over the chart's value 40"
            in notes
        )
        assert "The limit of shards" not in notes
    command = next(line.strip() for line in notes.splitlines() if "kubectl patch configmap swe-argo-limits" in line)
    change(release, **json.loads(command.split("-p '")[1].rstrip("'"))["data"])
    assert limits(release) == before
    assert "was changed to" not in upgraded(release, "--set=limits.units=40")


def test_new_value_beats_manual_limit(release: Release) -> None:
    change(release, units="8", shards="9")
    assert "was changed to" not in upgraded(release, "--set=limits.units=60")
    assert limits(release)["units"] == "60"
    assert limits(release)["shards"] != "9"
