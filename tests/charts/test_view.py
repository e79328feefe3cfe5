"""What the chart makes of the viewer: a program that takes its flags and can do nothing but read the bucket."""

from __future__ import annotations

import base64
import subprocess
import sys
from typing import Any

import pytest

from tests.charts.chart import Rendered, check_confined_as_steps, container, refused, render, selects
from tests.charts.test_pipeline import PIPELINE

ON = (*PIPELINE, "view.enabled=true")
ROLE = "view.annotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/reads"


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return render(*ON)


def pod(rendered: Rendered) -> dict[str, Any]:
    template: dict[str, Any] = rendered.one("Deployment", "swe-argo-view")["spec"]["template"]
    return template


def box(rendered: Rendered) -> dict[str, Any]:
    return container(pod(rendered))


def test_chart_without_view_omits_it() -> None:
    assert not any("view" in manifest["metadata"]["name"] for manifest in render(*PIPELINE).objects)


def test_view_flags_match_program(chart: Rendered) -> None:
    from swe_argo.workflows.view.__main__ import VIEW

    flags = dict(arg.removeprefix("--").split("=", 1) for arg in box(chart)["args"])
    assert box(chart)["command"] == ["python3", "-m", "swe_argo.workflows.view"]
    assert flags == {"host": "0.0.0.0", "port": "7676", "store": "s3://runs/"}
    assert flags.keys() <= {option.name for option in VIEW.options}
    assert box(chart)["ports"] == [{"name": "http", "containerPort": int(flags["port"])}]


def test_view_needs_no_missing_packages() -> None:
    absent = {"typer", "rich", "hera", "docker", "pytest"}
    code = f"import sys, swe_argo.workflows.view.__main__; sys.exit(' '.join({absent!r} & sys.modules.keys()) or None)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_view_token_is_long(chart: Rendered) -> None:
    token = base64.b64decode(chart.one("Secret", "swe-argo-view")["data"]["SWE_ARGO_VIEW_TOKEN"])
    assert len(token) == 40
    with_secret = render(*ON, "view.existingSecret=lookers")
    assert "swe-argo-view" not in with_secret.names("Secret")
    for rendered, name in ((chart, "swe-argo-view"), (with_secret, "lookers")):
        (variable,) = (entry for entry in box(rendered)["env"] if entry["name"] == "SWE_ARGO_VIEW_TOKEN")
        assert variable["valueFrom"] == {"secretKeyRef": {"name": name, "key": "SWE_ARGO_VIEW_TOKEN"}}


def test_view_is_confined_like_steps(chart: Rendered) -> None:
    check_confined_as_steps(chart, pod(chart))


def test_view_account_has_own_cloud_role() -> None:
    both = (*ON, "serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/writes")
    for sets, role in ((both, "role/writes"), ((*both, ROLE), "role/reads")):
        rendered = render(*sets)
        annotations = rendered.one("ServiceAccount", "swe-argo-view")["metadata"]["annotations"]
        assert annotations["eks.amazonaws.com/role-arn"].endswith(role)
        steps = rendered.one("ServiceAccount", "swe-argo-steps")["metadata"]["annotations"]
        assert steps["eks.amazonaws.com/role-arn"].endswith("role/writes")


def test_view_admits_only_ingress(chart: Rendered) -> None:
    labels = pod(chart)["metadata"]["labels"]
    service = chart.one("Service", "swe-argo-view")["spec"]
    assert selects({"matchLabels": service["selector"]}, labels)
    policy = chart.one("NetworkPolicy", "swe-argo-view")["spec"]
    assert selects(policy["podSelector"], labels)
    ((rule,),) = (policy["ingress"],)
    (peer,) = rule["from"]
    assert selects(peer["podSelector"], {"app": "ingress"})
    assert not selects(peer["podSelector"], {"swe-argo/role": "solve"})
    assert rule["ports"] == [{"protocol": "TCP", "port": 7676}]


def test_view_requires_bucket() -> None:
    assert "no bucket is set" in refused("view.enabled=true")
