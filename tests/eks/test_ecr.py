"""Repositories and the cache of Docker Hub in ECR: made once, and brought up to date after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from swe_argo.steps.contracts.ids import swebench_image, through_registry
from swe_argo.steps.datasets.mini.forms import instance_ids
from tests.eks.cloud import ACCOUNT, CREDENTIALS, REGION, Caches, caches, client
from tests.eks.files import run_python, script
from tests.s3 import moto

REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team"
SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ecr-pullthroughcache/docker-hub-AbCdEf"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto() as address:
        yield address


def create(endpoint: str, **more: str) -> str:
    result = script("create-ecr", AWS_ENDPOINT_URL=endpoint, **CREDENTIALS, **more)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_create_ecr_is_idempotent(endpoint: str) -> None:
    first = create(endpoint, IMAGE_REGISTRY=REGISTRY)
    ecr = client("ecr", endpoint)

    def own_repositories() -> list[Any]:
        repositories = ecr.describe_repositories()["repositories"]
        ours = [repository for repository in repositories if repository["repositoryName"].startswith("team/")]
        return sorted(ours, key=lambda repository: str(repository["repositoryUri"]))

    before = own_repositories()
    expected = {f"{REGISTRY}/swe-argo-{name}" for name in ("steps", "training")}
    expected |= {through_registry(swebench_image(name), REGISTRY).removesuffix(":latest") for name in instance_ids()}
    assert {repository["repositoryUri"] for repository in before} == expected
    assert f"export IMAGE_REGISTRY={REGISTRY}\n" in first
    second = create(endpoint, IMAGE_REGISTRY=REGISTRY)
    assert own_repositories() == before
    assert "created " not in second
    assert second.count("exists ") == len(expected)


def test_repositories_expire_images(endpoint: str) -> None:
    ecr = client("ecr", endpoint)
    name = "team/swe-argo-steps"
    if not any(item["repositoryName"] == name for item in ecr.describe_repositories()["repositories"]):
        ecr.create_repository(repositoryName=name)
    ecr.put_image_scanning_configuration(repositoryName=name, imageScanningConfiguration={"scanOnPush": False})
    create(endpoint, IMAGE_REGISTRY=REGISTRY)
    (repository,) = ecr.describe_repositories(repositoryNames=[name])["repositories"]
    assert repository["imageScanningConfiguration"]["scanOnPush"] is True
    (rule,) = json.loads(ecr.get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])["rules"]
    assert (rule["selection"]["tagStatus"], rule["action"]["type"]) == ("untagged", "expire")


def test_registry_defaults_to_account(endpoint: str) -> None:
    output = create(endpoint)
    assert f"export IMAGE_REGISTRY={ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/swe-argo\n" in output
    assert "DOCKER_HUB_SECRET is not set" in output


def test_ecr_dry_run_creates_nothing(endpoint: str) -> None:
    folder = REGISTRY.replace("team", "dry")
    result = script("create-ecr", "-n", AWS_ENDPOINT_URL=endpoint, **CREDENTIALS, IMAGE_REGISTRY=folder)
    assert "would create repository dry/swe-argo-steps in eu-central-1" in result.stdout
    names = [
        repository["repositoryName"] for repository in client("ecr", endpoint).describe_repositories()["repositories"]
    ]
    assert not any(name.startswith("dry/") for name in names)


def test_aws_failure_is_one_line() -> None:
    result = script("create-ecr", AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1", **CREDENTIALS)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "Could not connect to the endpoint URL" in line


def cache(endpoint: str, secret: str = SECRET) -> Any:
    words = ["cache", "--region", REGION, "--prefix", "docker-hub", "--secret", secret]
    return run_python("ecr.py", *words, AWS_ENDPOINT_URL=endpoint, **CREDENTIALS)


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Caches]]]:
    with caches() as server:
        yield server


def test_image_cache_matches_runs(registry: tuple[str, type[Caches]]) -> None:
    endpoint, cache_state = registry
    result = cache(endpoint)
    assert result.returncode == 0, result.stderr
    prefix = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/docker-hub"
    assert f"export SANDBOX_REGISTRY={prefix}\n" in result.stdout
    # ECR's names for images of Docker Hub are those that runs ask a registry for.
    image = "swebench/sweb.eval.x86_64.sympy_1776_sympy-12096:latest"
    assert through_registry(image, prefix) == f"{prefix}/{image}"
    assert cache_state.rules["docker-hub"]["credentialArn"] == SECRET
    assert cache_state.rules["docker-hub"]["upstreamRegistryUrl"] == "registry-1.docker.io"
    assert cache_state.templates["docker-hub"]["appliedFor"] == ["PULL_THROUGH_CACHE"]


def test_new_secret_replaces_old_one(registry: tuple[str, type[Caches]]) -> None:
    endpoint, cache_state = registry
    cache(endpoint)
    result = cache(endpoint, SECRET + "2")
    assert result.returncode == 0, result.stderr
    assert cache_state.rules["docker-hub"]["credentialArn"] == SECRET + "2"


def test_foreign_cache_is_left_alone(registry: tuple[str, type[Caches]]) -> None:
    endpoint, cache_state = registry
    cache_state.rules["docker-hub"] = {"ecrRepositoryPrefix": "docker-hub", "upstreamRegistryUrl": "public.ecr.aws"}
    result = cache(endpoint)
    assert result.returncode == 64
    assert "the cache docker-hub belongs to public.ecr.aws: name another folder in PULL_THROUGH_PREFIX" in result.stderr
    assert "credentialArn" not in cache_state.rules["docker-hub"]
