"""What the chart makes of the proxy: a program that takes its flags, whose callers find it and nobody else does."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile
from swe_argo.steps.proxy import NUMBERS, PROXY
from tests.charts.chart import CHART, FILES, NAMESPACE, Rendered, check_confined_as_steps, render, selects, try_render
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
    (container,) = pod(rendered)["spec"]["containers"]
    return dict(container)


def flags(rendered: Rendered) -> dict[str, str]:
    container = box(rendered)
    assert container["command"] == ["python3", "-m", f"swe_argo.steps.{PROXY.name}"]
    return dict(each.removeprefix("--").split("=", 1) for each in container["args"])


def environment(rendered: Rendered) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in box(rendered)["env"]}


def secret(name: str, what: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": what}}


def test_without_it_there_is_nothing_of_it() -> None:
    rendered = render(*PIPELINE)
    assert not any("proxy" in each["metadata"]["name"] for each in rendered.objects)
    settings = data(rendered, "swe-argo-settings")
    assert (settings["proxy-url"], settings["proxy-secret"]) == ("", "swe-argo-no-secret")


def test_its_flags_are_those_of_the_program(chart: Rendered, whole: Rendered) -> None:
    options = {option.name: option for option in PROXY.options}
    for rendered in (chart, whole):
        said = flags(rendered)
        assert said.keys() <= options.keys()
        assert {option.name for option in PROXY.options if option.required} <= said.keys()
        for name, (least, most) in NUMBERS.items():
            assert name not in said or least <= options[name].kind(said[name]) <= most
        assert said["port"] == str(box(rendered)["ports"][0]["containerPort"])
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


def test_large_numbers_stay_plain() -> None:
    said = flags(render(*ON, "proxy.context=1048576", "proxy.timeoutSeconds=86400", "proxy.atOnce=65536"))
    assert (said["context"], said["timeout"], said["at-once"]) == ("1048576", "86400", "65536")


def test_without_a_training_its_weights_never_change() -> None:
    assert not {"store", "pointer", "refresh"} & flags(render(*ON, "proxy.training=")).keys()


def test_it_runs_the_image_of_training_beside_that_of_the_steps() -> None:
    for sets, wanted in (
        ((), "localhost/swe-argo-training:0.1.0"),
        (("image.repository=steps",), "swe-argo-training:0.1.0"),
        (("image.tag=v1",), "localhost/swe-argo-training:v1"),
        ((f"image.tag=sha256:{'a' * 64}",), "localhost/swe-argo-training:0.1.0"),  # a digest is one image's
        (("image.tag=v1", "training.image.tag=v2"), "localhost/swe-argo-training:v2"),
        (("training.image.repository=ghcr.io/a/b",), "ghcr.io/a/b:0.1.0"),
        ((f"training.image.tag=sha256:{'a' * 64}",), f"localhost/swe-argo-training@sha256:{'a' * 64}"),
    ):
        rendered = render(*ON, *sets)
        assert box(rendered)["image"] == data(rendered, "swe-argo-settings")["training-image"] == wanted


def test_its_keys_come_from_secrets_and_stand_in_no_manifest(chart: Rendered, whole: Rendered) -> None:
    own = environment(chart)
    assert own["TINKER_API_KEY"] == secret("tinker-credentials", "TINKER_API_KEY")
    assert own["LLM_API_KEY"] == secret("swe-argo-proxy", "LLM_API_KEY")
    assert own["HF_TOKEN"]["secretKeyRef"]["optional"] is True
    assert not {"SWE_ARGO_PROXY_ADMIN_KEY", "TINKER_BASE_URL"} & own.keys()
    other = environment(whole)
    assert other["TINKER_API_KEY"] == secret("tinker", "TINKER_API_KEY")
    assert other["LLM_API_KEY"] == secret("callers", "LLM_API_KEY")
    assert other["SWE_ARGO_PROXY_ADMIN_KEY"] == secret("admin", "SWE_ARGO_PROXY_ADMIN_KEY")
    assert other["TINKER_BASE_URL"] == "http://10.244.0.9:8001"
    assert box(whole)["envFrom"] == [{"secretRef": {"name": "s3-keys"}}]
    assert "swe-argo-proxy" not in whole.names("Secret")


def test_the_key_of_callers_is_made_long_and_another_for_each_installation() -> None:
    keys = [render(*ON).one("Secret", "swe-argo-proxy")["data"]["LLM_API_KEY"] for _ in range(2)]
    assert keys[0] != keys[1]
    assert all(len(base64.b64decode(each)) == 40 for each in keys)


def test_runs_are_told_where_it_is_and_get_its_key(chart: Rendered, whole: Rendered) -> None:
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
        if "SWE_ARGO_PROXY_KEY" in {each["name"] for found in parts(template, "env") for each in found}
    }
    assert {"plan", "solve"} <= holders
    assert not holders & {"grade", "report", "finalize"}


def test_it_is_confined_as_the_steps_are(chart: Rendered) -> None:
    check_confined_as_steps(chart, pod(chart))
    (volume,) = pod(chart)["spec"]["volumes"]
    assert volume["emptyDir"]["sizeLimit"]


def test_it_has_the_clouds_role_to_read_the_bucket(whole: Rendered) -> None:
    assert "eks.amazonaws.com/role-arn" in whole.one("ServiceAccount", "swe-argo-proxy")["metadata"]["annotations"]


def test_it_goes_where_the_values_say_and_before_what_asks_it(chart: Rendered, whole: Rendered) -> None:
    assert pod(chart)["spec"]["priorityClassName"] == f"swe-argo-control-{NAMESPACE}"
    spec = pod(whole)["spec"]
    assert spec["nodeSelector"] == {"role": "system"}
    assert [each["value"] for each in spec["tolerations"]] == ["system"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert box(whole)["resources"]["limits"] == {"memory": "4Gi"}


def test_calls_that_go_on_are_ended_before_it_is(chart: Rendered) -> None:
    from swe_argo.steps.serving.server import GRACE_S

    pause = box(chart)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(chart)["spec"]["terminationGracePeriodSeconds"] > GRACE_S + pause
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert box(chart)[probe]["httpGet"] == {"path": "/health", "port": "http"}


def test_of_several_one_may_go_at_a_time_and_of_one_nothing_is_said(chart: Rendered, whole: Rendered) -> None:
    assert not chart.all("PodDisruptionBudget")
    (budget,) = whole.all("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert selects(budget["spec"]["selector"], pod(whole)["metadata"]["labels"])
    assert whole.one("Deployment", "swe-argo-proxy")["spec"]["replicas"] == 2


def test_what_asks_models_reaches_it_and_nothing_else_does(chart: Rendered) -> None:
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


def test_steps_have_a_way_to_it_and_sandboxes_have_none(chart: Rendered) -> None:
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


def test_it_reaches_what_steps_reach_outside_and_its_service_but_not_the_api_server(
    chart: Rendered, whole: Rendered
) -> None:
    steps, proxy = (ways(chart, name) for name in ("swe-argo-steps", "swe-argo-proxy"))
    assert all(each in steps for each in proxy)
    assert {each[0]["cidr"] for each in steps if each not in proxy} == set(made_values()["network"]["apiServerCIDRs"])
    assert ({"cidr": "10.244.0.9/32"}, "TCP", 8001, 8001) in ways(whole, "swe-argo-proxy")
    assert ({"cidr": "10.244.0.1/32"}, "TCP", 9000, 9000) in ways(whole, "swe-argo-proxy")


def made_values() -> dict[str, Any]:
    import yaml

    document: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return document


def test_policies_may_be_left_to_others() -> None:
    assert "swe-argo-proxy" not in render(*ON, "network.create=false").names("NetworkPolicy")


def test_the_values_of_a_namespace_that_trains_are_whole() -> None:
    done = try_render("--values", CHART / "values-training.yaml", *(f"--set={each}" for each in PIPELINE))
    assert done.returncode == 0, done.stderr
    assert "--base-model=Qwen/" in done.stdout


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["proxy.enabled=true", "proxy.baseModel=a/b"], "the chart makes no pipeline whose runs would ask it"),
        ([*PIPELINE, "proxy.enabled=true"], "proxy.baseModel is empty: name a model of Tinker"),
    ],
)
def test_a_proxy_that_could_not_serve_is_refused_in_one_line(sets: list[str], said: str) -> None:
    done = try_render(*(f"--set={each}" for each in sets))
    assert done.returncode != 0
    assert len([line for line in done.stderr.splitlines() if line and "--debug" not in line]) == 1
    assert said in done.stderr
