"""The settings, limits and ways that the chart gives the pipeline's pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.charts.chart import CHART, NAMESPACE, Rendered, reaches, render, selects
from tests.charts.test_pipeline import PIPELINE, data

S3_SERVER = CHART / "ci" / "s3-server-values.yaml"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def full() -> Rendered:
    return render(*PIPELINE)


@pytest.fixture(scope="module")
def small() -> Rendered:
    """On a cluster in the private network 10.244.0.0/24, with S3 and models in it."""
    return render(case=S3_SERVER)


def settings(*sets: str) -> dict[str, str]:
    return data(render(*PIPELINE, *sets), "swe-argo-settings")


def test_settings_are_strings(full: Rendered, small: Rendered) -> None:
    assert {type(item) for rendered in (full, small) for item in data(rendered, "swe-argo-settings").values()} == {str}
    own = data(full, "swe-argo-settings")
    assert (own["retries"], own["resource-factor"], own["region"]) == ("2", "1", "us-east-1")
    assert own["hf-endpoint"] == "https://huggingface.co"
    assert data(small, "swe-argo-settings")["resource-factor"] == "0.5"


def test_secret_references_have_names(full: Rendered, small: Rendered) -> None:
    own = data(full, "swe-argo-settings")
    assert own["credentials"] == "tinker-credentials"
    assert own["s3-secret"] == own["webhook-secret"] == "swe-argo-no-secret"
    server = data(small, "swe-argo-settings")
    assert (server["s3-secret"], server["credentials"]) == ("s3-keys", "swe-argo-no-secret")


@pytest.mark.parametrize(("prefix", "expected"), [("", ""), ("a", "a/"), ("/a/b//", "a/b/"), ("/", "")])
def test_prefix_ends_in_slash(prefix: str, expected: str) -> None:
    rendered = render(*PIPELINE, f"aws.s3.prefix={prefix}")
    assert data(rendered, "swe-argo-settings")["prefix"] == expected
    key = yaml.safe_load(data(rendered, "swe-argo-artifacts")["default"])["s3"]["keyFormat"]
    assert key == expected + "logs/{{pod.name}}"


@pytest.mark.parametrize(
    ("sets", "expected", "host", "insecure"),
    [
        (["aws.s3.endpoint=10.1.2.3:9000"], "https://10.1.2.3:9000", "10.1.2.3:9000", False),
        (["aws.s3.endpoint=10.1.2.3:9000", "aws.s3.insecure=true"], "http://10.1.2.3:9000", "10.1.2.3:9000", True),
        (["aws.s3.endpoint=http://minio.minio.svc/"], "http://minio.minio.svc", "minio.minio.svc", True),
        (["aws.s3.endpoint=https://s3.example.org"], "https://s3.example.org", "s3.example.org", False),
        ([], "", "s3.amazonaws.com", False),
    ],
)
def test_steps_and_argo_share_s3_server(sets: list[str], expected: str, host: str, insecure: bool) -> None:
    rendered = render(*PIPELINE, *sets)
    assert data(rendered, "swe-argo-settings")["s3-endpoint"] == expected
    repository = yaml.safe_load(data(rendered, "swe-argo-artifacts")["default"])["s3"]
    assert (repository["endpoint"], repository["insecure"]) == (host, insecure)
    assert "accessKeySecret" not in repository


def test_argo_uses_s3_secret_of_steps(small: Rendered) -> None:
    repository = yaml.safe_load(data(small, "swe-argo-artifacts")["default"])["s3"]
    assert repository["accessKeySecret"] == {"name": "s3-keys", "key": "AWS_ACCESS_KEY_ID"}
    assert repository["secretKeySecret"] == {"name": "s3-keys", "key": "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize(
    ("units", "window", "shards"),
    [(1, 1, 2), (2, 1, 3), (9, 4, 3), (50, 10, 7), (2000, 10, 250)],
)
def test_limits_share_shards(units: int, window: int, shards: int) -> None:
    """A shard takes half of the units at most, and two runs have a shard at least: no run waits for all of another."""
    rendered = render(*PIPELINE, f"limits.units={units}")
    limits = rendered.one("ConfigMap", "swe-argo-limits")["data"]
    assert limits == {"units": str(units), "shards": str(shards), "runs": str(max(2, shards))}
    (template,) = (item for item in rendered.all("WorkflowTemplate") if item["metadata"]["name"] == "swe-argo-shard")
    (dag,) = (item for item in template["spec"]["templates"] if item["name"] == "shard")
    assert dag["parallelism"] == window
    assert units <= window * shards <= max(2 * units, units + window)


@pytest.mark.parametrize(("tag", "expected"), [("", ":0.1.0"), ("v1", ":v1"), (DIGEST, f"@{DIGEST}")])
def test_image_is_named_by_tag_or_digest(tag: str, expected: str) -> None:
    assert settings(f"image.tag={tag}")["image"] == f"localhost/steps{expected}"


BACKOFF = {"DURATION": "5s", "FACTOR": "1", "STEPS": "60"}
_ENV = [{"name": f"EXECUTOR_RETRY_BACKOFF_{name}", "value": value} for name, value in BACKOFF.items()]
PATIENT = {"containers": [{"name": "wait", "env": _ENV}], "initContainers": [{"name": "init", "env": _ENV}]}
"""The variables of Argo's own containers beside a step."""


def test_pods_follow_scheduling_values() -> None:
    own = data(render(case=CHART / "ci" / "eks-values.yaml"), "swe-argo-settings")
    control = {
        "nodeSelector": {"role": "system"},
        "tolerations": [{"key": "role", "operator": "Equal", "value": "system", "effect": "NoSchedule"}],
        "priorityClassName": f"swe-argo-control-{NAMESPACE}",
    }
    assert json.loads(own["control-pod"]) == control | PATIENT
    assert json.loads(own["waiter-pod"]) == control
    sandboxes = [{"key": "role", "operator": "Equal", "value": "cpu-sandbox", "effect": "NoSchedule"}]
    step = {"priorityClassName": f"swe-argo-step-{NAMESPACE}", "tolerations": sandboxes}
    assert json.loads(own["step-pod"]) == step | PATIENT
    nothing = settings("steps.tolerations=null", "priorityClass.create=false")
    assert json.loads(nothing["step-pod"]) == json.loads(nothing["control-pod"]) == PATIENT
    assert nothing["waiter-pod"] == "{}"


def test_executor_retries_for_minutes() -> None:
    assert BACKOFF["FACTOR"] == "1"
    # Argo adds up to half of each pause.
    assert 240 <= (int(BACKOFF["STEPS"]) - 1) * int(BACKOFF["DURATION"].rstrip("s")) <= 600


def test_main_container_has_resources(small: Rendered) -> None:
    own = data(small, "swe-argo-settings")
    requests = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    main = {"name": "main", "imagePullPolicy": "Never"}
    assert json.loads(own["step-pod"])["containers"] == [main | {"resources": requests}, *PATIENT["containers"]]
    assert json.loads(own["control-pod"])["containers"] == [main, *PATIENT["containers"]]
    assert json.loads(own["waiter-pod"])["containers"] == [main]
    pulled = json.loads(settings("imagePullSecrets={one,two}")["control-pod"])
    assert pulled["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_priorities_are_ordered() -> None:
    for sets, values in (((), (-1, 0, 1)), (("priorityClass.value=-9",), (-9, -8, -7))):
        classes = {item["metadata"]["name"]: item for item in render(*PIPELINE, *sets).all("PriorityClass")}
        names = [f"swe-argo-{kind}-{NAMESPACE}" for kind in ("sandbox", "step", "control")]
        assert set(classes) == set(names)
        assert tuple(classes[name]["value"] for name in names) == values
        assert {item["preemptionPolicy"] for item in classes.values()} == {"Never"}


def ways(rendered: Rendered, policy: str = "swe-argo-steps") -> list[tuple[Any, str, int, int]]:
    """What a pod of a policy reaches by address: network, ranges left out, first and last port."""
    return [
        (peer["ipBlock"], port["protocol"], port["port"], port.get("endPort", port["port"]))
        for rule in rendered.one("NetworkPolicy", policy)["spec"]["egress"]
        for peer in rule["to"]
        if "ipBlock" in peer
        for port in rule["ports"]
    ]


def reached(rendered: Rendered, address: str, port: int) -> bool:
    return reaches(rendered.one("NetworkPolicy", "swe-argo-steps"), address, port)


def test_policy_selects_only_steps(full: Rendered) -> None:
    policy = full.one("NetworkPolicy", "swe-argo-steps")["spec"]
    assert selects(policy["podSelector"], {"swe-argo/step": "child"})
    assert not selects(policy["podSelector"], {"swe-argo/role": "solve"})
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == []
    assert all(rule["to"] and rule["ports"] for rule in policy["egress"])
    assert not selects(full.one("NetworkPolicy", "swe-argo-sandbox")["spec"]["podSelector"], {"swe-argo/step": "child"})


REACHED = [
    ("10.0.17.4", 443),  # the API server, as EKS has it
    ("10.244.0.1", 6443),
    ("52.216.1.2", 443),  # S3, a model, a hub
    ("2600:1fa0::1", 443),
    ("169.254.170.23", 80),  # EKS Pod Identity
    ("fd00:ec2::23", 80),
]
DENIED = [
    ("169.254.169.254", 80),  # instance metadata, of EC2 and of others
    ("fd00:ec2::254", 80),
    ("169.254.169.254", 443),
    ("169.254.170.23", 443),
    ("10.0.17.4", 10250),  # a kubelet
    ("10.0.17.4", 9000),
    ("52.216.1.2", 80),
    ("127.0.0.1", 443),
]


def test_steps_reach_cloud_services_only(full: Rendered) -> None:
    assert [where for where in (*REACHED, *DENIED) if reached(full, *where)] == REACHED


def test_steps_reach_only_named_address(small: Rendered) -> None:
    allowed = [("10.244.0.1", port) for port in (9000, 9001, 9099, 6443)] + [("fd00:1::2", 8001)]
    others = [("10.244.0.2", 9000), ("10.244.0.1", 9100), ("10.244.0.1", 443), ("10.244.0.2", 6443)]
    assert [where for where in (*allowed, *others) if reached(small, *where)] == allowed


def test_steps_reach_named_port(small: Rendered) -> None:
    assert reached(small, "10.96.7.7", 8080)
    assert reached(small, "52.216.1.2", 8080)
    assert not reached(small, "169.254.169.254", 8080)
    assert reached(render(*PIPELINE, "hub.endpoint=http://hub"), "10.1.1.1", 80)
    assert not reached(render(*PIPELINE, "hub.endpoint=https://hub"), "10.1.1.1", 80)


def test_steps_dns_is_limited_to_cluster(full: Rendered) -> None:
    (dns,) = (
        rule for rule in full.one("NetworkPolicy", "swe-argo-steps")["spec"]["egress"] if "podSelector" in rule["to"][0]
    )
    assert dns["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    assert selects(dns["to"][0]["podSelector"], {"k8s-app": "kube-dns"})


def test_steps_policy_can_be_disabled() -> None:
    assert "swe-argo-steps" not in render(*PIPELINE, "network.create=false").names("NetworkPolicy")
