"""What proves that a sandbox is confined: the script runs on this machine, in a pod's place."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.confinement import prove_confined, reaches_cluster

if TYPE_CHECKING:
    from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod


class Here:
    """Runs scripts on this machine, with ``port`` of it as the API server's, and ``programs`` before all others."""

    def __init__(self, port: int, programs: Path) -> None:
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        self.said: list[str] = []

    def short_exec(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        done = subprocess.run(["sh", "-c", script], env=self._environment, stdout=subprocess.PIPE, check=False)
        self.said.append(done.stdout.decode().splitlines()[-1])
        return done.returncode, done.stdout


def prove(here: Here, settle_s: float) -> None:
    prove_confined(cast("KubernetesPod", here), "evals", settle_s=settle_s)


def test_who_is_kept_in_twice_is_confined(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        here = Here(silent.getsockname()[1], tmp_path)
        assert not reaches_cluster(cast("KubernetesPod", here), "evals", settle_s=60)
    assert here.said[-2:] == ["kept in"] * 2


def test_who_reaches_the_api_server_is_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Here(server.getsockname()[1], tmp_path)
        with pytest.raises(ConfigError, match="could reach the cluster"):
            prove(here, settle_s=0)
        assert reaches_cluster(cast("KubernetesPod", here), "evals", settle_s=0)


@pytest.mark.parametrize("bash", ["exec sleep 60", "echo no such program; exit 127"])
def test_who_does_not_come_to_connect_proves_nothing(tmp_path: Path, bash: str) -> None:
    (tmp_path / "bash").write_text(f"#!/bin/sh\n{bash}\n")
    (tmp_path / "bash").chmod(0o755)
    with pytest.raises(ConfigError, match="whether sandboxes in namespace evals are confined cannot be tried"):
        prove(Here(1, tmp_path), settle_s=0)
