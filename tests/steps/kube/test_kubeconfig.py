"""Credentials that change while a process runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kubernetes")

from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.kube import kubeconfig
from tests.kube_api import KubeApi, serving, write_kubeconfig

PROGRAM = """
import sys
from kubernetes.client import ApiException
from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.kube.kubeconfig import find
from swe_argo.steps.kube.requests import path, request_object
from swe_argo.steps.sandbox.kubernetes.exec import Exec, ExecRefused
cluster = find(KubernetesSpec())
client, shell = cluster.client(), Exec(cluster, "sb-1")
for _ in sys.stdin:
    try:
        request_object(client, "GET", path("pods", "evals"))
        rest = 200
    except ApiException as error:
        rest = error.status
    try:
        shell.once("true")
    except ExecRefused as refused:
        print(rest, refused.status, flush=True)
"""
"""Lists pods and opens an exec once for each line of stdin, by one client."""


@pytest.mark.parametrize("inline", [{}, {"token": "stale"}])
def test_token_file_is_reread(tmp_path: Path, inline: dict[str, str]) -> None:
    token, api = tmp_path / "token", KubeApi()
    with serving(api):
        where = write_kubeconfig(tmp_path, api.url, "here", user={"tokenFile": "token", **inline}, namespace="evals")
        token.write_text("first\n")
        command = [sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(
            command, env={"KUBECONFIG": str(where)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process as program:
            assert program.stdin
            assert program.stdout
            # the cluster's token, the file's token, statuses: 404 because the fake serves no exec
            for accepted, written, statuses in (
                ("first", "first\n", "200 404"),
                ("second", "second", "200 404"),
                ("second", "", "200 404"),
                ("third", "", "401 401"),
                ("third", "third", "200 404"),
            ):
                api.token = accepted
                token.write_text(written)
                program.stdin.write("\n")
                program.stdin.flush()
                assert program.stdout.readline().strip() == statuses


def test_account_token_is_reread_in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"namespace": "evals", "token": "first\n", "ca.crt": "ca"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = kubeconfig.find(KubernetesSpec()).configuration
    for token in ("first", "second"):
        (tmp_path / "token").write_text(token)
        assert configuration.auth_settings()["BearerToken"]["value"] == f"Bearer {token}"
    (tmp_path / "token").unlink()
    assert configuration.auth_settings()["BearerToken"]["value"] == "Bearer second"
