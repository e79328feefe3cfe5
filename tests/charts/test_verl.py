"""What the chart makes of a training by verl: pods with GPUs that may make sandboxes, and nobody else reaches."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from tests.charts.chart import CHART, Rendered, render, selects, try_render
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
    return [spec["headGroupSpec"]["template"], *(each["template"] for each in spec["workerGroupSpecs"])]


def box(of: dict[str, Any]) -> dict[str, Any]:
    (container,) = of["spec"]["containers"]
    return dict(container)


def environment(of: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in box(of)["env"] if "value" in each}


def test_without_it_there_is_nothing_of_it() -> None:
    assert not any("verl" in each["metadata"]["name"] for each in render().objects)


def test_it_needs_no_pipeline(job: Rendered) -> None:
    assert not job.all("WorkflowTemplate")
    assert job.names("Job") == {"swe-argo-verl-grpo"}


def test_the_command_is_verls_with_the_committed_configuration(job: Rendered, rayjob: Rendered) -> None:
    command = box(template(job))["command"]
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


def test_each_node_has_its_gpus(job: Rendered, rayjob: Rendered) -> None:
    assert box(template(job))["resources"] == {
        "requests": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": 8},
        "limits": {"nvidia.com/gpu": 8},
    }
    nodes = templates(rayjob)
    assert len(nodes) == 2
    (group,) = rayjob.one("RayJob", "swe-argo-verl-olmo-2")["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 1)
    for each in nodes:
        assert box(each)["resources"]["limits"] == {"memory": "512Gi", "nvidia.com/gpu": 4}
        assert each["spec"]["nodeSelector"] == {"role": "gpu"}
        assert [toleration["key"] for toleration in each["spec"]["tolerations"]] == ["role"]
        assert each["spec"]["priorityClassName"] == "training"
        assert box(each)["image"] == "registry.example.com/team/verl:v1"
        assert box(each)["envFrom"] == [{"secretRef": {"name": "wandb", "optional": True}}]
        assert environment(each)["NCCL_DEBUG"] == "INFO"


def test_the_first_pod_alone_prepares(job: Rendered, rayjob: Rendered) -> None:
    assert "initContainers" not in template(job)["spec"]
    head, worker = templates(rayjob)
    (prepare,) = head["spec"]["initContainers"]
    assert prepare["command"] == ["sh", "-c", "test -e /trainings/data/train.parquet"]
    assert "initContainers" not in worker["spec"]
    for same in ("image", "env", "volumeMounts", "securityContext"):
        assert prepare[same] == box(head)[same]


def test_data_and_checkpoints_lie_on_the_volume(job: Rendered, rayjob: Rendered) -> None:
    for each in (template(job), templates(rayjob)[1]):
        volumes = {volume["name"]: volume for volume in each["spec"]["volumes"]}
        assert volumes["trainings"]["persistentVolumeClaim"] == {"claimName": "trainings"}
        assert {"name": "trainings", "mountPath": "/trainings"} in box(each)["volumeMounts"]
        assert environment(each)["SWE_ARGO_VERL_DATA"] == "/trainings/data"
        assert environment(each)["SWE_ARGO_VERL_LOGS"] == "/trainings/logs"
        assert volumes["shm"]["emptyDir"]["medium"] == "Memory"


def test_its_sandboxes_are_those_of_the_runner_and_go_with_its_pod(job: Rendered, rayjob: Rendered) -> None:
    for rendered, each in ((job, template(job)), *((rayjob, node) for node in templates(rayjob))):
        account = each["spec"]["serviceAccountName"]
        bound = rendered.one("RoleBinding", "swe-argo-runner")["subjects"]
        assert account in {subject["name"] for subject in bound}
        assert each["spec"]["automountServiceAccountToken"] is True
        from_pod = [one for one in box(each)["env"] if "valueFrom" in one]
        fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in from_pod}
        assert fields == {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"}


def test_it_is_no_sandbox_and_no_step(job: Rendered, rayjob: Rendered) -> None:
    for rendered, each in ((job, template(job)), *((rayjob, node) for node in templates(rayjob))):
        labels = each["metadata"]["labels"]
        met = {
            policy["metadata"]["name"]
            for policy in rendered.all("NetworkPolicy")
            if selects(policy["spec"]["podSelector"], labels)
        }
        assert met == {"swe-argo-verl"}


def test_it_is_confined_as_a_program_that_needs_gpus_can_be(job: Rendered) -> None:
    spec = template(job)["spec"]
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["fsGroup"]) == (True, 65532)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert box(template(job))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_nothing_reaches_a_job_and_a_ray_clusters_nodes_are_reached_by_each_other_and_kuberay(
    job: Rendered, rayjob: Rendered
) -> None:
    assert job.one("NetworkPolicy", "swe-argo-verl")["spec"]["ingress"] == []
    nodes, operator = rayjob.one("NetworkPolicy", "swe-argo-verl")["spec"]["ingress"]
    (peer,) = nodes["from"]
    assert peer.keys() == {"podSelector"}  # of this namespace
    assert all(selects(peer["podSelector"], each["metadata"]["labels"]) for each in templates(rayjob))
    assert not selects(peer["podSelector"], sandbox(rayjob, "solve", network=False)["metadata"]["labels"])
    (operators,) = operator["from"]
    assert operators["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]  # Ray's dashboard, where jobs are handed in


def test_it_reaches_what_steps_reach(job: Rendered) -> None:
    pipeline = render(*ON, "aws.s3.bucket=runs")
    assert ways(pipeline, "swe-argo-verl") == ways(pipeline, "swe-argo-steps")
    assert ways(job, "swe-argo-verl")


def test_policies_may_be_left_to_others() -> None:
    assert "swe-argo-verl" not in render(*ON, "network.create=false").names("NetworkPolicy")


def test_the_volume_of_the_recipe_is_the_charts(job: Rendered) -> None:
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
def test_a_training_that_could_not_begin_is_refused_in_one_line(sets: list[str], reason: str) -> None:
    done = try_render("--set=verl.enabled=true", *(f"--set={each}" for each in sets))
    assert done.returncode != 0
    assert len([line for line in done.stderr.splitlines() if line and "--debug" not in line]) == 1
    assert reason in done.stderr


def test_the_defaults_name_the_taint_of_gpu_nodes() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["verl"]
    assert values["tolerations"] == [{"key": values["gpuResource"], "operator": "Exists", "effect": "NoSchedule"}]
