"""Repositories and the cache of Docker Hub in ECR: made once, and brought up to date after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from swe_argo.steps.contracts.images import swebench_image, through_registry
from swe_argo.steps.datasets.mini.content import instance_ids
from tests.eks.cloud import ACCOUNT, CREDENTIALS, Caches, caches
from tests.eks.files import script
from tests.s3 import moto

REGION = "eu-central-1"
REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team"
SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ecr-pullthroughcache/docker-hub-AbCdEf"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto() as address:
        yield address


def create(endpoint: str, **more: str) -> str:
    done = script("create-ecr", AWS_ENDPOINT_URL=endpoint, **CREDENTIALS, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ecr(endpoint: str) -> Any:
    return boto3.client(
        "ecr", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x"
    )


def test_every_image_that_push_pushes_has_a_repository_and_a_second_time_changes_nothing(endpoint: str) -> None:
    first = create(endpoint, IMAGE_REGISTRY=REGISTRY)
    client = ecr(endpoint)

    def made() -> list[Any]:
        there = client.describe_repositories()["repositories"]
        ours = [each for each in there if each["repositoryName"].startswith("team/")]
        return sorted(ours, key=lambda each: str(each["repositoryUri"]))

    before = made()
    wanted = {f"{REGISTRY}/swe-argo-{name}" for name in ("steps", "training")}
    wanted |= {through_registry(swebench_image(name), REGISTRY).removesuffix(":latest") for name in instance_ids()}
    assert {each["repositoryUri"] for each in before} == wanted
    assert f"export IMAGE_REGISTRY={REGISTRY}\n" in first
    second = create(endpoint, IMAGE_REGISTRY=REGISTRY)
    assert made() == before
    assert "made   " not in second
    assert second.count("exists ") == len(wanted)


def test_repositories_scan_what_is_pushed_and_forget_what_was_replaced(endpoint: str) -> None:
    client = ecr(endpoint)
    name = "team/swe-argo-steps"
    if not any(each["repositoryName"] == name for each in client.describe_repositories()["repositories"]):
        client.create_repository(repositoryName=name)
    client.put_image_scanning_configuration(repositoryName=name, imageScanningConfiguration={"scanOnPush": False})
    create(endpoint, IMAGE_REGISTRY=REGISTRY)
    (there,) = client.describe_repositories(repositoryNames=[name])["repositories"]
    assert there["imageScanningConfiguration"]["scanOnPush"] is True
    (rule,) = json.loads(client.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])["rules"]
    assert (rule["selection"]["tagStatus"], rule["action"]["type"]) == ("untagged", "expire")


def test_without_a_registry_it_is_the_accounts_own(endpoint: str) -> None:
    said = create(endpoint)
    assert f"export IMAGE_REGISTRY={ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/swe-argo\n" in said
    assert "DOCKER_HUB_SECRET is not set" in said


def test_a_dry_run_makes_nothing(endpoint: str) -> None:
    folder = REGISTRY.replace("team", "dry")
    done = script("create-ecr", "-n", AWS_ENDPOINT_URL=endpoint, **CREDENTIALS, IMAGE_REGISTRY=folder)
    assert "would make repository dry/swe-argo-steps in eu-central-1" in done.stdout
    names = [each["repositoryName"] for each in ecr(endpoint).describe_repositories()["repositories"]]
    assert not any(name.startswith("dry/") for name in names)


def test_where_aws_says_no_it_is_one_line() -> None:
    done = script("create-ecr", AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1", **CREDENTIALS)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Could not connect to the endpoint URL" in line


def cache(endpoint: str, secret: str = SECRET) -> Any:
    from tests.eks.files import EKS, run_python

    words = ["cache", "--region", REGION, "--prefix", "docker-hub", "--secret", secret]
    return run_python(EKS / "ecr.py", *words, AWS_ENDPOINT_URL=endpoint, **CREDENTIALS)


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Caches]]]:
    with caches() as made:
        yield made


def test_the_cache_of_docker_hub_is_where_runs_pull_from(registry: tuple[str, type[Caches]]) -> None:
    endpoint, held = registry
    done = cache(endpoint)
    assert done.returncode == 0, done.stderr
    prefix = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/docker-hub"
    assert f"export SANDBOX_REGISTRY={prefix}\n" in done.stdout
    # ECR's names for images of Docker Hub are those that runs ask a registry for.
    image = "swebench/sweb.eval.x86_64.sympy_1776_sympy-12096:latest"
    assert through_registry(image, prefix) == f"{prefix}/{image}"
    assert held.rules["docker-hub"]["credentialArn"] == SECRET
    assert held.rules["docker-hub"]["upstreamRegistryUrl"] == "registry-1.docker.io"
    assert held.templates["docker-hub"]["appliedFor"] == ["PULL_THROUGH_CACHE"]


def test_a_new_secret_replaces_the_old_one(registry: tuple[str, type[Caches]]) -> None:
    endpoint, held = registry
    cache(endpoint)
    done = cache(endpoint, SECRET + "2")
    assert done.returncode == 0, done.stderr
    assert held.rules["docker-hub"]["credentialArn"] == SECRET + "2"


def test_a_cache_of_something_else_is_left_alone(registry: tuple[str, type[Caches]]) -> None:
    endpoint, held = registry
    held.rules["docker-hub"] = {"ecrRepositoryPrefix": "docker-hub", "upstreamRegistryUrl": "public.ecr.aws"}
    done = cache(endpoint)
    assert done.returncode == 64
    assert "the cache docker-hub is of public.ecr.aws: name another folder in PULL_THROUGH_PREFIX" in done.stderr
    assert "credentialArn" not in held.rules["docker-hub"]
