"""What the chart makes of a training by verl: pods with GPUs that may make sandboxes, and nobody else reaches."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from tests.charts.chart import CHART, Rendered, container, refused, render, selects
from tests.charts.test_rendered import pod as sandbox
from tests.charts.test_settings import ways
from tests.paths import ROOT

ON = ("verl.enabled=true", "verl.existingClaim=trainings", "image.repository=localhost/swe-argo-steps")


@pytest.fixture(scope="module")
def job() -> Rendered:
    return render(*ON)


@pytest.fixture(scope="module")
def rayjob() -> Rendered:
    """With every value set."""
    return render(case=CHART / "ci" / "verl-values.yaml")


def template(rendered: Rendered) -> dict[str, Any]:
    return dict(rendered.one("Job", "swe-argo-verl-grpo")["spec"]["template"])


def templates(rendered: Rendered) -> list[dict[str, Any]]:
    """Those of a RayJob: the head's, then those of its other nodes."""
    spec = rendered.one("RayJob", "swe-argo-verl-olmo-2")["spec"]["rayClusterSpec"]
    return [spec["headGroupSpec"]["template"], *(node_group["template"] for node_group in spec["workerGroupSpecs"])]


def environment(of: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(of)["env"] if "value" in variable}


def test_chart_without_verl_omits_it() -> None:
    assert not any("verl" in manifest["metadata"]["name"] for manifest in render().objects)


def test_verl_job_needs_no_pipeline(job: Rendered) -> None:
    assert not job.all("WorkflowTemplate")
    assert job.names("Job") == {"swe-argo-verl-grpo"}


def test_verl_uses_committed_config(job: Rendered, rayjob: Rendered) -> None:
    command = container(template(job))["command"]
    assert command[:3] == ["python3", "-m", "verl.trainer.main_ppo"]
    assert command[-2:] == ["trainer.nnodes=1", "trainer.n_gpus_per_node=8"]
    folder = environment(template(job))["SWE_ARGO_VERL"]
    assert command[command.index("--config-path") + 1] == folder
    recipe = (ROOT / "images" / "verl.Dockerfile").read_text()
    assert f"COPY templates {folder.removesuffix('/verl')}\n" in recipe
    assert (ROOT / "templates" / "verl" / f"{command[command.index('--config-name') + 1]}.yaml").is_file()
    entrypoint = shlex.split(rayjob.one("RayJob", "swe-argo-verl-olmo-2")["spec"]["entrypoint"])
    assert entrypoint[:7] == command[:7]
    assert entrypoint[-5:] == [
        "trainer.experiment_name=olmo-2",
        "trainer.nnodes=2",
        "trainer.n_gpus_per_node=4",
        "+example=olmo",
        "trainer.logger=[console,wandb]",
    ]


def test_verl_nodes_have_their_gpus(job: Rendered, rayjob: Rendered) -> None:
    assert container(template(job))["resources"] == {
        "requests": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": 8},
        "limits": {"nvidia.com/gpu": 8},
    }
    nodes = templates(rayjob)
    assert len(nodes) == 2
    (group,) = rayjob.one("RayJob", "swe-argo-verl-olmo-2")["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 1)
    for node in nodes:
        assert container(node)["resources"]["limits"] == {"memory": "512Gi", "nvidia.com/gpu": 4}
        assert node["spec"]["nodeSelector"] == {"role": "gpu"}
        assert [toleration["key"] for toleration in node["spec"]["tolerations"]] == ["role"]
        assert node["spec"]["priorityClassName"] == "training"
        assert container(node)["image"] == "registry.example.com/team/verl:v1"
        assert container(node)["envFrom"] == [{"secretRef": {"name": "wandb", "optional": True}}]
        assert environment(node)["NCCL_DEBUG"] == "INFO"


def test_only_first_verl_pod_prepares(job: Rendered, rayjob: Rendered) -> None:
    assert "initContainers" not in template(job)["spec"]
    head, worker = templates(rayjob)
    (prepare,) = head["spec"]["initContainers"]
    assert prepare["command"] == ["sh", "-c", "test -e /trainings/data/train.parquet"]
    assert "initContainers" not in worker["spec"]
    for field in ("image", "env", "volumeMounts", "securityContext"):
        assert prepare[field] == container(head)[field]


def test_verl_data_is_on_volume(job: Rendered, rayjob: Rendered) -> None:
    for pod_template in (template(job), templates(rayjob)[1]):
        volumes = {volume["name"]: volume for volume in pod_template["spec"]["volumes"]}
        assert volumes["trainings"]["persistentVolumeClaim"] == {"claimName": "trainings"}
        assert {"name": "trainings", "mountPath": "/trainings"} in container(pod_template)["volumeMounts"]
        assert environment(pod_template)["SWE_ARGO_VERL_DATA"] == "/trainings/data"
        assert environment(pod_template)["SWE_ARGO_VERL_LOGS"] == "/trainings/logs"
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"


def test_verl_pod_owns_sandboxes(job: Rendered, rayjob: Rendered) -> None:
    for rendered, pod_template in ((job, template(job)), *((rayjob, node) for node in templates(rayjob))):
        account = pod_template["spec"]["serviceAccountName"]
        bound = rendered.one("RoleBinding", "swe-argo-runner")["subjects"]
        assert account in {subject["name"] for subject in bound}
        assert pod_template["spec"]["automountServiceAccountToken"] is True
        from_pod = [variable for variable in container(pod_template)["env"] if "valueFrom" in variable]
        fields = {variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"] for variable in from_pod}
        assert fields == {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"}


def test_verl_pod_has_own_policy(job: Rendered, rayjob: Rendered) -> None:
    for rendered, pod_template in ((job, template(job)), *((rayjob, node) for node in templates(rayjob))):
        labels, policies = pod_template["metadata"]["labels"], rendered.all("NetworkPolicy")
        met = {item["metadata"]["name"] for item in policies if selects(item["spec"]["podSelector"], labels)}
        assert met == {"swe-argo-verl"}


def test_verl_pod_is_confined(job: Rendered) -> None:
    spec = template(job)["spec"]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["fsGroup"]) == (True, 65532)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(template(job))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_verl_admits_only_ray(job: Rendered, rayjob: Rendered) -> None:
    assert job.one("NetworkPolicy", "swe-argo-verl")["spec"]["ingress"] == []
    nodes, operator = rayjob.one("NetworkPolicy", "swe-argo-verl")["spec"]["ingress"]
    (peer,) = nodes["from"]
    assert peer.keys() == {"podSelector"}  # of this namespace
    assert all(selects(peer["podSelector"], pod_template["metadata"]["labels"]) for pod_template in templates(rayjob))
    assert not selects(peer["podSelector"], sandbox(rayjob, "solve", network=False)["metadata"]["labels"])
    (operators,) = operator["from"]
    assert operators["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]  # Ray's dashboard, where jobs are handed in


def test_verl_reaches_what_steps_reach(job: Rendered) -> None:
    pipeline = render(*ON, "aws.s3.bucket=runs")
    assert ways(pipeline, "swe-argo-verl") == ways(pipeline, "swe-argo-steps")
    assert ways(job, "swe-argo-verl")


def test_verl_policy_can_be_disabled() -> None:
    assert "swe-argo-verl" not in render(*ON, "network.create=false").names("NetworkPolicy")


def test_verl_recipe_matches_chart(job: Rendered) -> None:
    recipe = (ROOT / "images" / "verl.Dockerfile").read_text()
    assert f"USER {template(job)['spec']['securityContext']['runAsUser']}:" in recipe
    for name in ("HOME", "USER", "SWE_ARGO_VERL"):
        assert f"{name}={environment(template(job))[name]}" in recipe


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (["verl.existingClaim=c"], "verl.image.repository is empty"),
        (["image.repository=a"], "verl.existingClaim is empty: name a PersistentVolumeClaim"),
        ([*ON[1:], "verl.nodes=2"], "verl.nodes is 2, but a Job is one pod: set verl.kind=RayJob"),
        ([*ON[1:], "sandbox.pods=false"], "sandbox.pods is false"),
    ],
)
def test_broken_training_is_refused(sets: list[str], reason: str) -> None:
    assert reason in refused("verl.enabled=true", *sets)


def test_verl_tolerates_gpu_taint() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["verl"]
    assert values["tolerations"] == [{"key": values["gpuResource"], "operator": "Exists", "effect": "NoSchedule"}]
