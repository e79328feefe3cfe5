"""The commands that the README and the chart print, run as they stand: build, push, install, submit."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swe_argo.steps.datasets.mini.forms import instance_ids
from tests.argo.pipeline import S3, TINY, own_bucket
from tests.cluster.real_cluster import Cluster
from tests.debian import NoDebianError, root_archive
from tests.images import index
from tests.images.conftest import DEBIAN, LOCKS, buildah
from tests.paths import ROOT
from tests.registry import serve as serve_registry

pytestmark = pytest.mark.slow

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
ENDPOINT = f"http://{S3[0]}:{S3[1]}"
ONE = instance_ids()[0]
"""The first of mini: the only one here that gets an image."""


@dataclass(frozen=True)
class Place:
    """Where the commands are run: what stands for the names that the README makes up, and the environment."""

    names: dict[str, str]
    environment: dict[str, str]

    def here(self, command: str) -> str:
        """A printed command with the names of this place."""
        for name, own in self.names.items():
            command = re.sub(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", own, command)
        return command

    def run(self, command: str, *more: str) -> str:
        """What a printed command says, which must go well; ``more`` is what this machine adds to it."""
        line = " ".join([self.here(command), *more])
        result = subprocess.run(
            ["bash", "-c", line],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
        assert result.returncode == 0, f"{line}\n{result.stdout[-3000:]}{result.stderr[-3000:]}"
        return result.stdout


def readme(heading: str) -> list[str]:
    """The commands of the first console block under a heading of the README, continued lines as one."""
    text = (ROOT / "README.md").read_text().split(f"# {heading}\n", 1)[1]
    block = text.split("```console\n", 1)[1].split("```", 1)[0].replace("\\\n", " ")
    return [" ".join(line.removeprefix("$ ").partition("  #")[0].split()) for line in block.splitlines()]


def printed(notes: str, program: str) -> str:
    """The command of a program that the chart's notes print."""
    return next(line.strip() for line in notes.splitlines() if line.startswith(f"  {program} "))


@pytest.fixture
def place(argo_cluster: Cluster, tmp_path: Path) -> Iterator[Place]:
    """A registry, a bucket, a base image and an index of packages of this machine; all are gone at the end."""
    try:
        root_archive()
        folder = index.wheels(LOCKS / "steps.lock", "3.11")
    except (NoDebianError, index.NoWheelsError) as reason:
        pytest.skip(f"no image can be built here: {reason}")
    namespace = f"printed-{secrets.token_hex(3)}"
    with (
        serve_registry() as registry,
        index.serve(folder) as wheels,
        buildah(tmp_path, registry.address, [DEBIAN]) as storage,
        own_bucket(namespace) as bucket,
    ):
        environment = argo_cluster.environment | storage | KEYS
        environment |= {"BUILDER": "buildah", "BASE": DEBIAN, "BUILD_NETWORK": "host"}
        environment |= {"PIP_INDEX_URL": wheels.url, "AWS_ENDPOINT_URL_S3": ENDPOINT, "COLUMNS": "200"}
        environment["PATH"] = f"{ROOT / '.venv' / 'bin'}:{environment['PATH']}"
        environment["MAKEFLAGS"] = "--old-file=.venv/.ready --old-file=.venv/.full"  # these tests run in it
        names = {"registry.example.com/team": f"{registry.address}/team", "BUCKET": bucket, "evals": namespace}
        try:
            yield Place(names, environment)
        finally:
            argo_cluster.try_kubectl("-n", namespace, "delete", "workflows", "--all", "--wait=false")
            gone = ["helm", "uninstall", "swe-argo", "--namespace", namespace]
            subprocess.run(gone, env=environment, check=False, capture_output=True)
            argo_cluster.try_kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
            _forget(argo_cluster, registry.address)


def _forget(cluster: Cluster, registry: str) -> None:
    """Take the images of a registry that is gone off the node."""
    mine = [name for name in cluster.images() if name.startswith(f"{registry}/")]
    words = ["ctr", "--address", str(cluster.state / "containerd.sock"), "-n", "k8s.io", "images", "rm", *mine]
    subprocess.run(words, env=cluster.environment, check=False, capture_output=True)


def test_printed_commands_run_mini(place: Place) -> None:
    build, install, submit, *_ = readme("Run on a cluster")
    assert [command.split()[0] for command in (build, install, submit)] == ["make", "helm", "swe-argo"]
    place.run(build, f"IMAGES='steps {ONE}'")
    server = ["--set", f"aws.s3.endpoint={ENDPOINT}", "--set", "aws.s3.existingSecret=bucket-keys"]
    notes = place.run(install, *TINY, *server)
    assert printed(notes, "make build push") == place.here(build)
    assert printed(notes, "swe-argo submit") == place.here(submit)
    secret = printed(notes, "kubectl create secret generic bucket-keys")
    place.run(re.sub(r"(AWS_\w+)=[.]{3}", lambda match: f"{match[1]}={KEYS[match[1]]}", secret))
    assert "resolved 1/1, infra 0" in place.run(submit, "--k", "1").splitlines()[-1]
    output = place.run(printed(notes, "argo submit"), "-p", "k=1")
    assert re.search(r"^Status: +Succeeded$", output, re.MULTILINE), output
