"""The settings, limits and ways that the chart gives the pipeline's pods."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml

from tests.charts.chart import CHART, NAMESPACE, Rendered, render, selects
from tests.charts.test_pipeline import PIPELINE, data

S3_SERVER = CHART / "ci" / "s3-server-values.yaml"


@pytest.fixture(scope="module")
def made() -> Rendered:
    return render(*PIPELINE)


@pytest.fixture(scope="module")
def small() -> Rendered:
    """On a cluster in the private network 10.244.0.0/24, with S3 and models in it."""
    return render(case=S3_SERVER)


def settings(*sets: str) -> dict[str, str]:
    return data(render(*PIPELINE, *sets), "swe-argo-settings")


def test_settings_are_words_even_where_values_are_numbers(made: Rendered, small: Rendered) -> None:
    assert {type(each) for rendered in (made, small) for each in data(rendered, "swe-argo-settings").values()} == {str}
    own = data(made, "swe-argo-settings")
    assert (own["retries"], own["resource-factor"], own["region"]) == ("2", "1", "us-east-1")
    assert own["hf-endpoint"] == "https://huggingface.co"
    assert data(small, "swe-argo-settings")["resource-factor"] == "0.5"


def test_a_reference_to_a_secret_has_a_name_even_where_there_is_none(made: Rendered, small: Rendered) -> None:
    own = data(made, "swe-argo-settings")
    assert own["credentials"] == "tinker-credentials"
    assert own["s3-secret"] == own["webhook-secret"] == "swe-argo-no-secret"
    server = data(small, "swe-argo-settings")
    assert (server["s3-secret"], server["credentials"]) == ("s3-keys", "swe-argo-no-secret")


@pytest.mark.parametrize(
    ("said", "meant"),
    [("", ""), ("a", "a/"), ("a/", "a/"), ("/a/b", "a/b/"), ("a/b//", "a/b/"), ("/", "")],
)
def test_a_prefix_is_empty_or_ends_in_a_slash(said: str, meant: str) -> None:
    rendered = render(*PIPELINE, f"aws.s3.prefix={said}")
    assert data(rendered, "swe-argo-settings")["prefix"] == meant
    key = yaml.safe_load(data(rendered, "swe-argo-artifacts")["default"])["s3"]["keyFormat"]
    assert key == meant + "logs/{{pod.name}}"


@pytest.mark.parametrize(
    ("sets", "meant", "host", "insecure"),
    [
        (["aws.s3.endpoint=10.1.2.3:9000"], "https://10.1.2.3:9000", "10.1.2.3:9000", False),
        (["aws.s3.endpoint=10.1.2.3:9000", "aws.s3.insecure=true"], "http://10.1.2.3:9000", "10.1.2.3:9000", True),
        (["aws.s3.endpoint=http://minio.minio.svc/"], "http://minio.minio.svc", "minio.minio.svc", True),
        (["aws.s3.endpoint=https://s3.example.org"], "https://s3.example.org", "s3.example.org", False),
        ([], "", "s3.amazonaws.com", False),
    ],
)
def test_steps_and_argo_find_the_same_server(sets: list[str], meant: str, host: str, insecure: bool) -> None:
    rendered = render(*PIPELINE, *sets)
    assert data(rendered, "swe-argo-settings")["s3-endpoint"] == meant
    repository = yaml.safe_load(data(rendered, "swe-argo-artifacts")["default"])["s3"]
    assert (repository["endpoint"], repository["insecure"]) == (host, insecure)
    assert "accessKeySecret" not in repository


def test_argo_takes_the_keys_from_the_secret_that_the_steps_take_them_from(small: Rendered) -> None:
    repository = yaml.safe_load(data(small, "swe-argo-artifacts")["default"])["s3"]
    assert repository["accessKeySecret"] == {"name": "s3-keys", "key": "AWS_ACCESS_KEY_ID"}
    assert repository["secretKeySecret"] == {"name": "s3-keys", "key": "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize(
    ("units", "window", "shards"),
    [(1, 1, 2), (2, 1, 3), (4, 2, 3), (8, 4, 3), (9, 4, 3), (20, 10, 3), (50, 10, 7), (500, 10, 63), (2000, 10, 250)],
)
def test_limits_leave_room_for_another_run_and_keep_all_units_busy(units: int, window: int, shards: int) -> None:
    """A shard takes half of the units at most, and two runs have a shard at least: no run waits for all of another."""
    rendered = render(*PIPELINE, f"limits.units={units}")
    limits = rendered.one("ConfigMap", "swe-argo-limits")["data"]
    assert limits == {"units": str(units), "shards": str(shards), "runs": str(max(2, shards))}
    (made,) = (each for each in rendered.all("WorkflowTemplate") if each["metadata"]["name"] == "swe-argo-shard")
    (dag,) = (each for each in made["spec"]["templates"] if each["name"] == "shard")
    assert dag["parallelism"] == window
    assert units <= window * shards <= max(2 * units, units + window)


@pytest.mark.parametrize(
    ("tag", "meant"),
    [
        ("", "localhost/steps:0.1.0"),
        ("v1", "localhost/steps:v1"),
        (f"sha256:{'a' * 64}", f"localhost/steps@sha256:{'a' * 64}"),
    ],
)
def test_an_image_is_named_by_tag_or_digest(tag: str, meant: str) -> None:
    assert settings(f"image.tag={tag}")["image"] == meant


def _patience() -> dict[str, Any]:
    said = (("DURATION", "5s"), ("FACTOR", "1"), ("STEPS", "60"))
    env = [{"name": f"EXECUTOR_RETRY_BACKOFF_{name}", "value": value} for name, value in said]
    return {"containers": [{"name": "wait", "env": env}], "initContainers": [{"name": "init", "env": env}]}


PATIENT = _patience()
"""What Argo's own containers beside a step are told."""


def test_pods_go_where_the_values_say() -> None:
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


def test_argos_containers_wait_for_a_store_that_is_away_longer_than_argo_does_by_itself() -> None:
    (wait,) = (each["env"] for each in PATIENT["containers"])
    said = {each["name"].removeprefix("EXECUTOR_RETRY_BACKOFF_"): each["value"] for each in wait}
    least_s = (int(said["STEPS"]) - 1) * int(said["DURATION"].rstrip("s"))  # Argo adds up to half of each pause
    assert said["FACTOR"] == "1"
    assert 240 <= least_s <= 600


def test_the_main_container_gets_its_resources_and_pull_policy(small: Rendered) -> None:
    own = data(small, "swe-argo-settings")
    requests = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    main = {"name": "main", "imagePullPolicy": "Never"}
    assert json.loads(own["step-pod"])["containers"] == [main | {"resources": requests}, *PATIENT["containers"]]
    assert json.loads(own["control-pod"])["containers"] == [main, *PATIENT["containers"]]
    assert json.loads(own["waiter-pod"])["containers"] == [main]
    pulled = json.loads(settings("imagePullSecrets={one,two}")["control-pod"])
    assert pulled["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_control_pods_go_before_steps_and_steps_before_sandboxes_and_none_pushes_another_aside() -> None:
    for sets, values in (((), (-1, 0, 1)), (("priorityClass.value=-9",), (-9, -8, -7))):
        classes = {each["metadata"]["name"]: each for each in render(*PIPELINE, *sets).all("PriorityClass")}
        names = [f"swe-argo-{kind}-{NAMESPACE}" for kind in ("sandbox", "step", "control")]
        assert set(classes) == set(names)
        assert tuple(classes[name]["value"] for name in names) == values
        assert {each["preemptionPolicy"] for each in classes.values()} == {"Never"}


def ways(rendered: Rendered, policy: str = "swe-argo-steps") -> list[tuple[Any, str, int, int]]:
    """What a pod of a policy reaches by address: network, ranges left out, first and last port."""
    found = []
    for rule in rendered.one("NetworkPolicy", policy)["spec"]["egress"]:
        for block in (each["ipBlock"] for each in rule["to"] if "ipBlock" in each):
            for port in rule["ports"]:
                last = port.get("endPort", port["port"])
                found.append((block, port["protocol"], port["port"], last))
    return found


def reached(rendered: Rendered, address: str, port: int) -> bool:
    to = ip_address(address)
    return any(
        to in ip_network(block["cidr"])
        and not any(to in ip_network(each) for each in block.get("except", []))
        and protocol == "TCP"
        and first <= port <= last
        for block, protocol, first, last in ways(rendered)
    )


def test_the_policy_is_for_the_pods_of_steps_and_not_for_sandboxes(made: Rendered) -> None:
    policy = made.one("NetworkPolicy", "swe-argo-steps")["spec"]
    assert selects(policy["podSelector"], {"swe-argo/step": "child"})
    assert not selects(policy["podSelector"], {"swe-argo/role": "solve"})
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == []
    assert all(rule["to"] and rule["ports"] for rule in policy["egress"])
    assert not selects(made.one("NetworkPolicy", "swe-argo-sandbox")["spec"]["podSelector"], {"swe-argo/step": "child"})


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("10.0.17.4", 443),  # the API server, as EKS has it
        ("10.244.0.1", 6443),
        ("52.216.1.2", 443),  # S3, a model, a hub
        ("2600:1fa0::1", 443),
        ("169.254.170.23", 80),  # EKS Pod Identity
        ("fd00:ec2::23", 80),
    ],
)
def test_step_pods_reach_what_a_run_on_a_cloud_needs(made: Rendered, address: str, port: int) -> None:
    assert reached(made, address, port)


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("169.254.169.254", 80),  # instance metadata, of EC2 and of others
        ("fd00:ec2::254", 80),
        ("169.254.169.254", 443),
        ("169.254.170.23", 443),
        ("10.0.17.4", 10250),  # a kubelet
        ("10.0.17.4", 9000),
        ("52.216.1.2", 80),
        ("52.216.1.2", 22),
        ("127.0.0.1", 443),
    ],
)
def test_step_pods_reach_nothing_else(made: Rendered, address: str, port: int) -> None:
    assert not reached(made, address, port)


def test_a_server_that_is_named_by_its_address_is_let_through_to_alone(small: Rendered) -> None:
    assert reached(small, "10.244.0.1", 9000)
    assert reached(small, "10.244.0.1", 9001)
    assert reached(small, "10.244.0.1", 9099)
    assert reached(small, "10.244.0.1", 6443)
    assert reached(small, "fd00:1::2", 8001)
    for address, port in (("10.244.0.2", 9000), ("10.244.0.1", 9100), ("10.244.0.1", 443), ("10.244.0.2", 6443)):
        assert not reached(small, address, port)


def test_a_server_that_has_a_name_is_let_through_to_by_its_port(small: Rendered) -> None:
    assert reached(small, "10.96.7.7", 8080)
    assert reached(small, "52.216.1.2", 8080)
    assert not reached(small, "169.254.169.254", 8080)
    assert reached(render(*PIPELINE, "hub.endpoint=http://hub"), "10.1.1.1", 80)
    assert not reached(render(*PIPELINE, "hub.endpoint=https://hub"), "10.1.1.1", 80)


def test_names_are_asked_of_the_clusters_dns(made: Rendered) -> None:
    (dns,) = (
        each for each in made.one("NetworkPolicy", "swe-argo-steps")["spec"]["egress"] if "podSelector" in each["to"][0]
    )
    assert dns["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    assert selects(dns["to"][0]["podSelector"], {"k8s-app": "kube-dns"})


def test_policies_may_be_left_to_others() -> None:
    assert "swe-argo-steps" not in render(*PIPELINE, "network.create=false").names("NetworkPolicy")
