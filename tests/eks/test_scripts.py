"""The scripts of a cluster on EKS: what they would do, and what they refuse. Nothing here reaches AWS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eks.files import EKS, REGISTRY, SCRIPTS, VALUES, before, dry, script, values

WISH = {"IMAGE_REGISTRY": f"{REGISTRY}/swe-argo/", "IMAGE_TAG": "7"}


def test_up_makes_the_cluster_then_its_endpoints_then_the_way_to_it() -> None:
    made, endpoints, context = dry("up")
    assert made.endswith("cluster/eks/fill.py cluster/eks/cluster.yaml | eksctl create cluster --config-file -")
    assert endpoints.endswith("cluster/eks/endpoints.py up --cluster evals --region eu-central-1")
    assert context == "eksctl utils write-kubeconfig --cluster evals --region eu-central-1"


def test_a_cluster_that_is_there_is_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "eksctl").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/called\n')
    (tmp_path / "python").write_text(
        f'#!/bin/sh\ncase "$1" in *endpoints.py) ;; *) exec {sys.executable} "$@" ;; esac\n'
    )
    for program in (tmp_path / "eksctl", tmp_path / "python", tmp_path / "kubectl"):
        program.touch()
        program.chmod(0o755)
    done = script("up", PATH=before(tmp_path), PYTHON=str(tmp_path / "python"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "called").read_text().splitlines() == [
        "get cluster --name evals --region eu-central-1",
        "create nodegroup --config-file -",
        "update podidentityassociation --config-file -",
        "utils write-kubeconfig --cluster evals --region eu-central-1",
    ]


def test_deploy_installs_argo_then_the_autoscaler_then_the_pipeline() -> None:
    argo, autoscaler, ours = dry("deploy", **WISH)
    assert "--namespace argo " in argo
    assert "archive-values.yaml" not in argo
    assert "--set autoDiscovery.clusterName=evals --set awsRegion=eu-central-1" in autoscaler
    for value in (
        "aws.region=eu-central-1",
        "aws.s3.bucket=our-runs",
        "aws.s3.prefix=team",
        f"image.repository={REGISTRY}/swe-argo/swe-argo-steps",
        "image.tag=7",
    ):
        assert f" {value} " in ours
    assert "--namespace bench " in ours
    assert "imagePrefixes" not in ours


def test_the_viewer_comes_with_its_link_in_the_argo_ui() -> None:
    argo, _, ours = dry("deploy", **WISH, VIEW="1", VIEW_URL="https://runs.example/")
    assert "https://runs.example/runs/${metadata.labels.swe-argo/run}" in argo
    assert f"controller.links[{len(values('argo-values.yaml')['controller']['links'])}].url=" in argo
    assert " view.enabled=true " in ours
    assert not any("view" in line for line in dry("deploy", **WISH))


def test_training_is_the_same_pipeline_with_the_values_of_training() -> None:
    (ours,) = dry("deploy-training", **WISH)
    usual = dry("deploy", **WISH)[-1]
    more = " --values charts/swe-argo/values-training.yaml --set training.existingSecret=tinker-credentials"
    assert ours.replace(more, "") == usual
    assert more in ours
    (ours,) = dry("deploy-training", **WISH, BASE_MODEL="Qwen/Qwen3-8B", TRAINING="007", SECRET="mine")
    assert (
        " --set training.existingSecret=mine --set proxy.baseModel=Qwen/Qwen3-8B --set-string proxy.training=007 "
        in ours
    )


@pytest.mark.parametrize("held", ["yes", ""])
def test_training_is_not_installed_without_its_key(tmp_path: Path, held: str) -> None:
    context = '[ "$*" = "config current-context" ] && echo me@evals.eu-central-1.eksctl.io'
    asked = f'case "$*" in *TINKER_API_KEY*) echo "{held}" ;; esac'
    for program, text in (("helm", f'echo "$*" >>{tmp_path}/called'), ("kubectl", f"{context}\n{asked}")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    done = script("deploy-training", **WISH, PATH=before(tmp_path))
    if held:
        assert done.returncode == 0, done.stderr
        assert "values-training.yaml" in (tmp_path / "called").read_text()
        return
    assert done.returncode == 64
    assert "Secret tinker-credentials in namespace bench does not hold TINKER_API_KEY: put it into .env" in done.stderr
    assert not (tmp_path / "called").exists()


def test_with_a_cache_sandboxes_run_images_of_it_and_ours_only() -> None:
    ours = dry("deploy", **WISH, SANDBOX_REGISTRY=f"{REGISTRY}/docker-hub/")[-1]
    assert f"'sandbox.imagePrefixes={{{REGISTRY}/docker-hub/,{REGISTRY}/swe-argo/}}'" in ours


def test_an_archive_is_there_for_the_asking() -> None:
    argo = dry("deploy", **WISH, ARCHIVE_HOST="db.example")[0]
    assert "--values cluster/eks/archive-values.yaml --set controller.persistence.postgresql.host=db.example" in argo


def test_karpenter_takes_the_place_of_the_autoscaler() -> None:
    said = "\n".join(dry("deploy", **WISH, AUTOSCALER="karpenter"))
    assert "cluster-autoscaler" not in said
    assert "--set settings.clusterName=evals --set settings.interruptionQueue=evals" in said
    assert "cluster/eks/karpenter.yaml | kubectl apply --server-side" in said


@pytest.mark.parametrize(
    ("words", "more", "wanted"),
    [
        (["smoke"], {}, "--dataset verified --agent gold --backend kubernetes --namespace bench --k 5"),
        (["verified"], {"RUN_ID": "night-1"}, "--agent gold --backend kubernetes --namespace bench --run-id night-1"),
        (
            ["verified"],
            {"AGENT": "openhands", "MODEL": "m/x"},
            "--agent openhands --backend kubernetes --namespace bench --model m/x",
        ),
        (["smoke"], {"MODEL": "m/x"}, "--agent r2egym --backend kubernetes --namespace bench --k 5 --model m/x"),
        (["smoke"], {"SANDBOX_REGISTRY": f"{REGISTRY}/docker-hub"}, f"--k 5 --registry {REGISTRY}/docker-hub"),
        (["smoke"], {"ARGS": "--attempts 2", "DATASET": "mini"}, "--k 5 --attempts 2"),
    ],
)
def test_submit_says_the_spec(words: list[str], more: dict[str, str], wanted: str) -> None:
    (command,) = dry("submit", *words, **more)
    assert command.startswith("swe-argo submit --dataset ")
    assert command.endswith(wanted)


def test_prescale_orders_nodes_of_the_sandboxes_group() -> None:
    (command,) = dry("prescale", NODES="5")
    assert command == "eksctl scale nodegroup --cluster evals --region eu-central-1 --name cpu-sandbox --nodes 5 --wait"


def test_results_are_the_reports_of_all_runs_or_one_run_whole() -> None:
    (reports,) = dry("results")
    assert "s3://our-runs/team/runs results/runs --exclude '*' --include '*/report/*'" in reports
    (one,) = dry("results", RUN="night-1", DIR="here", S3_PREFIX="")
    assert one.endswith("s3://our-runs/runs/night-1 here/runs/night-1")


def test_teardown_removes_what_holds_the_vpc_before_the_cluster() -> None:
    ours, endpoints, cluster, left = dry("teardown")
    assert ours.startswith("helm uninstall swe-argo --namespace bench")
    assert endpoints.endswith("cluster/eks/endpoints.py down --cluster evals --region eu-central-1")
    assert cluster.startswith("eksctl delete cluster --name evals --region eu-central-1")
    assert "s3://our-runs" in left


def test_teardown_of_karpenter_takes_its_nodes_away_first() -> None:
    said = dry("teardown", AUTOSCALER="karpenter")
    order = [
        next(i for i, line in enumerate(said) if part in line)
        for part in ("nodepool", "uninstall karpenter", "delete cluster")
    ]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("name", "words", "more", "said"),
    [
        ("up", [], {"S3_BUCKET": ""}, "S3_BUCKET is not set, e.g. S3_BUCKET=my-swe-argo-runs"),
        ("up", [], {"CLUSTER": "a b"}, "CLUSTER='a b' is no plain value"),
        ("deploy", [], {"S3_BUCKET": ""}, "S3_BUCKET is not set"),
        ("deploy", [], {}, f"IMAGE_REGISTRY is not set, e.g. IMAGE_REGISTRY={REGISTRY}/swe-argo"),
        ("deploy", [], {**WISH, "AUTOSCALER": "magic"}, "AUTOSCALER=magic: cluster-autoscaler, karpenter or none"),
        ("prescale", [], {}, "NODES is not set, e.g. NODES=5"),
        ("prescale", [], {"NODES": "21"}, "NODES=21: a number from 0 to 20"),
        ("prescale", [], {"NODES": "-1"}, "NODES=-1: a number from 0 to 20"),
        ("prescale", [], {"NODES": "2", "AUTOSCALER": "karpenter"}, "it has no node group"),
        ("results", [], {"S3_BUCKET": ""}, "S3_BUCKET is not set"),
        ("create-ecr", [], {"DOCKER_HUB_SECRET": "hub"}, "ecr-pullthroughcache/"),
        ("create-ecr", [], {"IMAGE_REGISTRY": "example.org/x"}, "example.org/x is no registry of Amazon ECR"),
        ("create-ecr", [], {"AWS_REGION": "us-east-2", **WISH}, "is in eu-central-1, but AWS_REGION is us-east-2"),
        ("secrets", ["/no/such"], {}, "there is no /no/such"),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_one_line_that_names_it(name: str, words: list[str], more: dict[str, str], said: str) -> None:
    done = script(name, "-n", *words, **more)
    assert done.returncode == 64
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_call_that_it_does_not_know_prints_how_it_is_used(name: str) -> None:
    done = script(name, "--frobnicate")
    assert done.returncode == 64
    assert f"cluster/eks/{name}" in done.stderr


@pytest.mark.parametrize(
    ("name", "more", "lacking"),
    [("up", {}, "eksctl"), ("deploy", WISH, "helm"), ("prescale", {"NODES": "1"}, "eksctl"), ("results", {}, "aws")],
)
def test_a_program_that_is_missing_is_named(tmp_path: Path, name: str, more: dict[str, str], lacking: str) -> None:
    for program in ("bash", "env", "sed", "dirname", "basename", "python3", "kubectl"):
        found = shutil.which(program)
        if found:
            (tmp_path / program).symlink_to(found)
    done = script(name, **more, PATH=str(tmp_path))
    assert done.returncode == 64
    assert done.stderr.strip().endswith(f"{lacking} is not installed")


def test_the_cluster_is_deleted_by_its_name_only() -> None:
    done = script("teardown", CONFIRM="yes")
    assert done.returncode == 64
    assert "CONFIRM=evals if you mean it" in done.stderr


@pytest.mark.parametrize("context", ["other@evals2.eu-central-1.eksctl.io", "kind-kind", "evals"])
def test_another_cluster_of_the_kubeconfig_is_left_alone(tmp_path: Path, context: str) -> None:
    for program in ("helm", "kubectl"):
        (tmp_path / program).write_text(
            f'#!/bin/sh\n[ "$*" = "config current-context" ] && echo {context} && exit\nexit 9\n'
        )
        (tmp_path / program).chmod(0o755)
    done = script("deploy", **WISH, PATH=before(tmp_path))
    assert done.returncode == 64
    assert f"the kube context {context} is not of cluster evals in eu-central-1" in done.stderr


def test_shellcheck_finds_nothing() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("needs shellcheck")
    files = [str(EKS / name) for name in (*SCRIPTS, "settings.sh", "pipeline.sh")]
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_dry_run_of_everything_needs_no_program_of_the_cloud(tmp_path: Path) -> None:
    for program in ("bash", "env", "sed", "dirname", "basename"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    for name, words in (("up", []), ("deploy", []), ("karpenter", []), ("submit", ["smoke"]), ("teardown", [])):
        done = script(name, "-n", *words, PATH=str(tmp_path), **WISH)
        assert (done.returncode, done.stderr) == (0, ""), name
        assert VALUES["CLUSTER"] in done.stdout or name == "submit"
