"""The proof that a sandbox is confined, by a script that runs on this machine in place of a pod."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.confinement import reaches_cluster, verify_confined

if TYPE_CHECKING:
    from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod


class Here:
    """A pod that is this machine. ``port``: the API server's; ``programs``: the first folder of PATH."""

    def __init__(self, port: int, programs: Path) -> None:
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        self.last_lines: list[str] = []

    def short_exec(self, script: str, stdin: bytes = b"", *, wait_s: float = 0.0) -> tuple[int, bytes]:
        result = subprocess.run(["sh", "-c", script], env=self._environment, stdout=subprocess.PIPE, check=False)
        self.last_lines.append(result.stdout.decode().splitlines()[-1])
        return result.returncode, result.stdout


def prove(here: Here, settle_s: float) -> None:
    verify_confined(cast("KubernetesPod", here), "evals", settle_s=settle_s)


def test_confinement_needs_two_failures(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        here = Here(silent.getsockname()[1], tmp_path)
        assert not reaches_cluster(cast("KubernetesPod", here), "evals", settle_s=60)
    assert here.last_lines[-2:] == ["kept in"] * 2


def test_reachable_api_server_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Here(server.getsockname()[1], tmp_path)
        with pytest.raises(ConfigError, match="could reach the cluster"):
            prove(here, settle_s=0)
        assert reaches_cluster(cast("KubernetesPod", here), "evals", settle_s=0)


@pytest.mark.parametrize("bash", ["exec sleep 60", "echo no such program; exit 127"])
def test_failed_program_proves_nothing(tmp_path: Path, bash: str) -> None:
    (tmp_path / "bash").write_text(f"#!/bin/sh\n{bash}\n")
    (tmp_path / "bash").chmod(0o755)
    with pytest.raises(
        ConfigError, match="the network confinement of sandboxes in namespace evals could not be tested"
    ):
        prove(Here(1, tmp_path), settle_s=0)
