"""What the chart makes of the proxy: a program that takes its flags, whose callers find it and nobody else does."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile
from swe_argo.steps.proxy import NUMBERS, PROXY
from tests.charts.chart import (
    CHART,
    FILES,
    NAMESPACE,
    Rendered,
    check_confined_as_steps,
    container,
    refused,
    render,
    selects,
    try_render,
)
from tests.charts.test_pipeline import PIPELINE, data, parts
from tests.charts.test_settings import ways

ON = (*PIPELINE, "proxy.enabled=true", "proxy.baseModel=Qwen/Qwen3.6-35B-A3B")
URL = f"http://swe-argo-proxy.{NAMESPACE}.svc:8000/v1"


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return render(*ON)


@pytest.fixture(scope="module")
def whole() -> Rendered:
    """With every value set."""
    return render(case=CHART / "ci" / "training-values.yaml")


def pod(rendered: Rendered) -> dict[str, Any]:
    template: dict[str, Any] = rendered.one("Deployment", "swe-argo-proxy")["spec"]["template"]
    return template


def box(rendered: Rendered) -> dict[str, Any]:
    return container(pod(rendered))


def flags(rendered: Rendered) -> dict[str, str]:
    assert box(rendered)["command"] == ["python3", "-m", f"swe_argo.steps.{PROXY.name}"]
    return dict(arg.removeprefix("--").split("=", 1) for arg in box(rendered)["args"])


def environment(rendered: Rendered) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in box(rendered)["env"]}


def secret(name: str, field: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": field}}


def test_chart_without_proxy_omits_it() -> None:
    rendered = render(*PIPELINE)
    assert not any("proxy" in manifest["metadata"]["name"] for manifest in rendered.objects)
    settings = data(rendered, "swe-argo-settings")
    assert (settings["proxy-url"], settings["proxy-secret"]) == ("", "swe-argo-no-secret")


def test_proxy_flags_match_program(chart: Rendered, whole: Rendered) -> None:
    options = {option.name: option for option in PROXY.options}
    for rendered in (chart, whole):
        arguments = flags(rendered)
        assert arguments.keys() <= options.keys()
        assert {option.name for option in PROXY.options if option.required} <= arguments.keys()
        for name, (least, most) in NUMBERS.items():
            assert name not in arguments or least <= options[name].kind(arguments[name]) <= most
        assert arguments["port"] == str(box(rendered)["ports"][0]["containerPort"])
    assert flags(chart) == {
        "host": "0.0.0.0",
        "port": "8000",
        "base-model": "Qwen/Qwen3.6-35B-A3B",
        "name": "tinker",
        "at-once": "256",
        "timeout": "1800",
        "store": "s3://runs/",
        "pointer": key(WeightsFile, "tinker"),
        "refresh": "5",
    }
    more = {"tokenizer": "acme/tokenizer", "context": "32768", "tool-format": "hermes", "name": "policy"}
    weights = {"weights": "tinker://run/sampler_weights/000001", "pointer": key(WeightsFile, "one"), "refresh": "30"}
    assert flags(whole).items() >= (more | weights | {"store": "s3://runs/team/"}).items()


def test_proxy_flags_are_plain_numbers() -> None:
    arguments = flags(render(*ON, "proxy.context=1048576", "proxy.timeoutSeconds=86400", "proxy.atOnce=65536"))
    assert (arguments["context"], arguments["timeout"], arguments["at-once"]) == ("1048576", "86400", "65536")


def test_untrained_proxy_keeps_weights() -> None:
    assert not {"store", "pointer", "refresh"} & flags(render(*ON, "proxy.training=")).keys()


def test_proxy_image_follows_steps_image() -> None:
    for sets, expected in (
        ((), "localhost/swe-argo-training:0.1.0"),
        (("image.repository=steps",), "swe-argo-training:0.1.0"),
        (("image.tag=v1",), "localhost/swe-argo-training:v1"),
        ((f"image.tag=sha256:{'a' * 64}",), "localhost/swe-argo-training:0.1.0"),  # a digest is one image's
        (("image.tag=v1", "training.image.tag=v2"), "localhost/swe-argo-training:v2"),
        (("training.image.repository=ghcr.io/a/b",), "ghcr.io/a/b:0.1.0"),
        ((f"training.image.tag=sha256:{'a' * 64}",), f"localhost/swe-argo-training@sha256:{'a' * 64}"),
    ):
        rendered = render(*ON, *sets)
        assert box(rendered)["image"] == data(rendered, "swe-argo-settings")["training-image"] == expected


def test_proxy_keys_come_from_secrets(chart: Rendered, whole: Rendered) -> None:
    own = environment(chart)
    assert own["TINKER_API_KEY"] == secret("tinker-credentials", "TINKER_API_KEY")
    assert own["LLM_API_KEY"] == secret("swe-argo-proxy", "LLM_API_KEY")
    assert own["HF_TOKEN"]["secretKeyRef"]["optional"] is True
    assert not {"SWE_ARGO_PROXY_ADMIN_KEY", "TINKER_BASE_URL"} & own.keys()
    full = environment(whole)
    assert full["TINKER_API_KEY"] == secret("tinker", "TINKER_API_KEY")
    assert full["LLM_API_KEY"] == secret("callers", "LLM_API_KEY")
    assert full["SWE_ARGO_PROXY_ADMIN_KEY"] == secret("admin", "SWE_ARGO_PROXY_ADMIN_KEY")
    assert full["TINKER_BASE_URL"] == "http://10.244.0.9:8001"
    assert box(whole)["envFrom"] == [{"secretRef": {"name": "s3-keys"}}]
    assert "swe-argo-proxy" not in whole.names("Secret")


def test_proxy_key_is_random() -> None:
    charts = (render.__wrapped__(*ON) for _ in range(2))
    keys = [chart.one("Secret", "swe-argo-proxy")["data"]["LLM_API_KEY"] for chart in charts]
    assert keys[0] != keys[1]
    assert all(len(base64.b64decode(key)) == 40 for key in keys)


def test_runs_receive_proxy_url_and_key(chart: Rendered, whole: Rendered) -> None:
    assert data(chart, "swe-argo-settings")["proxy-url"] == URL
    assert data(chart, "swe-argo-settings")["proxy-secret"] == "swe-argo-proxy"
    assert data(whole, "swe-argo-settings")["proxy-secret"] == "callers"
    (service,) = chart.all("Service")
    assert f"http://{service['metadata']['name']}.{NAMESPACE}.svc:{service['spec']['ports'][0]['port']}/v1" == URL
    assert selects({"matchLabels": service["spec"]["selector"]}, pod(chart)["metadata"]["labels"])
    assert service["spec"]["ports"][0]["targetPort"] == box(chart)["ports"][0]["name"]
    holders = {
        template["name"]
        for file in FILES.values()
        for templates in parts(file, "templates")
        for template in templates
        if "SWE_ARGO_PROXY_KEY" in {variable["name"] for variables in parts(template, "env") for variable in variables}
    }
    assert {"plan", "solve"} <= holders
    assert not holders & {"grade", "report", "finalize"}


def test_proxy_is_confined_like_steps(chart: Rendered) -> None:
    check_confined_as_steps(chart, pod(chart))
    (volume,) = pod(chart)["spec"]["volumes"]
    assert volume["emptyDir"]["sizeLimit"]


def test_proxy_account_has_cloud_role(whole: Rendered) -> None:
    assert "eks.amazonaws.com/role-arn" in whole.one("ServiceAccount", "swe-argo-proxy")["metadata"]["annotations"]


def test_proxy_pod_follows_values(chart: Rendered, whole: Rendered) -> None:
    assert pod(chart)["spec"]["priorityClassName"] == f"swe-argo-control-{NAMESPACE}"
    spec = pod(whole)["spec"]
    assert spec["nodeSelector"] == {"role": "system"}
    assert [toleration["value"] for toleration in spec["tolerations"]] == ["system"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert box(whole)["resources"]["limits"] == {"memory": "4Gi"}


def test_proxy_drains_before_kill(chart: Rendered) -> None:
    from swe_argo.steps.serving.server import GRACE_S

    pause = box(chart)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(chart)["spec"]["terminationGracePeriodSeconds"] > GRACE_S + pause
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert box(chart)[probe]["httpGet"] == {"path": "/health", "port": "http"}


def test_proxy_budget_needs_replicas(chart: Rendered, whole: Rendered) -> None:
    assert not chart.all("PodDisruptionBudget")
    (budget,) = whole.all("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert selects(budget["spec"]["selector"], pod(whole)["metadata"]["labels"])
    assert whole.one("Deployment", "swe-argo-proxy")["spec"]["replicas"] == 2


def test_proxy_admits_only_model_callers(chart: Rendered) -> None:
    policy = chart.one("NetworkPolicy", "swe-argo-proxy")["spec"]
    assert selects(policy["podSelector"], pod(chart)["metadata"]["labels"])
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert peer.keys() == {"podSelector"}  # of this namespace
    assert rule["ports"] == [{"protocol": "TCP", "port": 8000}]
    for step in ("plan", "solve"):
        assert selects(peer["podSelector"], {"swe-argo/step": step})
        assert not selects(peer["podSelector"], {"swe-argo/step": step, "swe-argo/role": "solve"})
    for labels in ({}, {"swe-argo/role": "solve"}, {"swe-argo/step": "grade"}, {"swe-argo/step": "report"}):
        assert not selects(peer["podSelector"], labels)


def test_only_steps_reach_proxy(chart: Rendered) -> None:
    labels = pod(chart)["metadata"]["labels"]
    to_it = [
        rule["ports"]
        for rule in chart.one("NetworkPolicy", "swe-argo-steps")["spec"]["egress"]
        for peer in rule["to"]
        if "namespaceSelector" not in peer and selects(peer.get("podSelector", {"matchLabels": {"": ""}}), labels)
    ]
    assert to_it == [[{"protocol": "TCP", "port": 8000}]]
    for name in chart.names("NetworkPolicy") - {"swe-argo-steps", "swe-argo-proxy"}:
        for rule in chart.one("NetworkPolicy", name)["spec"].get("egress", []):
            assert not any("podSelector" in peer and "namespaceSelector" not in peer for peer in rule["to"])
    assert not selects(chart.one("NetworkPolicy", "swe-argo-steps")["spec"]["podSelector"], labels)


def test_proxy_cannot_reach_api_server(chart: Rendered, whole: Rendered) -> None:
    steps, proxy = (ways(chart, name) for name in ("swe-argo-steps", "swe-argo-proxy"))
    assert all(rule in steps for rule in proxy)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert {rule[0]["cidr"] for rule in steps if rule not in proxy} == set(defaults["network"]["apiServerCIDRs"])
    assert ({"cidr": "10.244.0.9/32"}, "TCP", 8001, 8001) in ways(whole, "swe-argo-proxy")
    assert ({"cidr": "10.244.0.1/32"}, "TCP", 9000, 9000) in ways(whole, "swe-argo-proxy")


def test_proxy_policy_can_be_disabled() -> None:
    assert "swe-argo-proxy" not in render(*ON, "network.create=false").names("NetworkPolicy")


def test_training_values_are_complete() -> None:
    result = try_render("--values", CHART / "values-training.yaml", *(f"--set={item}" for item in PIPELINE))
    assert result.returncode == 0, result.stderr
    assert "--base-model=Qwen/" in result.stdout


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            ["proxy.enabled=true", "proxy.baseModel=a/b"],
            "installs no pipeline whose runs would use the proxy",
        ),
        ([*PIPELINE, "proxy.enabled=true"], "proxy.baseModel is empty: name a model of Tinker"),
    ],
)
def test_chart_refuses_unusable_proxy(sets: list[str], message: str) -> None:
    assert message in refused(*sets)
