"""``cluster`` where kind and a Docker engine are there: what it asks of them. Programs of their names write it down."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.real_cluster import COMMAND

LOG = 'echo "${0##*/} $*" >>"$CALLS"'
KIND = f"""{LOG}
case "$1 $2" in
"version -q") echo "${{VERSION:-0.30.0}}" ;;
"get clusters") cat "$CALLS.clusters" 2>/dev/null || echo "No kind clusters found." >&2 ;;
"create cluster") echo swe-argo >"$CALLS.clusters" ;;
"delete cluster") rm -f "$CALLS.clusters" ;;
esac"""
# What crictl of a node says.
IMAGES = """{"images": [{"id": "sha256:ab12", "repoTags": ["docker.io/library/one:1", "localhost/two:latest"],
 "repoDigests": ["docker.io/library/one@sha256:cd34"]}]}"""
DOCKER = f"""{LOG}
[ "$4" != images ] || printf '%s' '{IMAGES}'"""


class Machine:
    """This machine, with a kind, a Docker engine and a kubectl that only say what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.state, self.calls = folder / "programs", folder / "state", folder / "calls"
        self.programs.mkdir()
        for name, script in (("kind", KIND), ("docker", DOCKER), ("kubectl", LOG)):
            (self.programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.programs / name).chmod(0o755)

    def cluster(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.programs}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": "/nowhere", "SWE_ARGO_CLUSTER": str(self.state), "CALLS": str(self.calls)}
        return subprocess.run([COMMAND, *arguments], env=own | more, capture_output=True, text=True, check=False)

    def trace(self, program: str, *arguments: str) -> list[str]:
        """What ``cluster ARGUMENTS``, which must go well, asks of a program."""
        self.calls.unlink(missing_ok=True)
        result = self.cluster(*arguments)
        assert result.returncode == 0, result.stderr
        lines = self.calls.read_text().splitlines()
        return [line.removeprefix(f"{program} ") for line in lines if line.startswith(f"{program} ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_up_makes_the_cluster_once(machine: Machine) -> None:
    admin = f"--kubeconfig {machine.state}/admin.conf"
    assert machine.trace("kind", "up") == [
        "version -q",
        "get clusters",
        f"create cluster --name swe-argo {admin} --wait 120s",
        f"export kubeconfig --name swe-argo {admin}",
    ]
    assert machine.trace("kind", "up") == ["version -q", "get clusters", f"export kubeconfig --name swe-argo {admin}"]
    assert machine.trace("kubectl", "up") == [
        f"{admin} wait --for=condition=Ready node --all --timeout=300s",
        f"{admin} label node --all role=cpu-sandbox --overwrite",
    ]


def test_down_deletes_only_its_cluster(machine: Machine) -> None:
    machine.cluster("up")
    (machine.state / "admin.conf").touch()
    assert machine.trace("kind", "down") == [f"delete cluster --name swe-argo --kubeconfig {machine.state}/admin.conf"]
    assert list(machine.state.iterdir()) == []
    machine.trace("kind", "down", "--all")
    assert not machine.state.exists()


def test_load_accepts_archive_and_image(machine: Machine, tmp_path: Path) -> None:
    archive = tmp_path / "one.tar"
    archive.touch()
    assert machine.trace("kind", "load", str(archive), "two:1") == [
        f"load image-archive --name swe-argo {archive}",
        "load docker-image --name swe-argo two:1",
    ]


def test_images_are_listed_by_name(machine: Machine) -> None:
    assert machine.cluster("images").stdout.split() == ["docker.io/library/one:1", "localhost/two:latest"]


def test_build_is_skipped_with_kind(machine: Machine) -> None:
    (machine.programs / "helm").symlink_to("/bin/true")
    result = machine.cluster("build")
    assert (result.returncode, result.stderr) == (0, "")
    assert not machine.state.exists()


def test_old_kind_is_refused(machine: Machine) -> None:
    result = machine.cluster("why-not", VERSION="0.23.0")
    reason = "kind 0.23.0 does not enforce network policies: install kind 0.24 or newer\n"
    assert (result.returncode, result.stdout) == (1, reason)
    result = machine.cluster("up", VERSION="0.23.0")
    assert (result.returncode, result.stderr) == (64, f"error: {reason}")
    assert machine.cluster("why-not").returncode == 0
    assert not machine.state.exists()


def test_missing_kubectl_is_reported(machine: Machine) -> None:
    (machine.programs / "kubectl").unlink()
    path = machine.programs / "rest"
    path.mkdir()
    for name in ("bash", "sh", "env", "dirname", "readlink", "sort", "head", "cat"):
        (path / name).symlink_to(Path("/usr/bin") / name)
    result = machine.cluster("why-not", PATH=f"{machine.programs}:{path}")
    assert (result.returncode, result.stdout) == (1, "kubectl is not installed: install it\n")
