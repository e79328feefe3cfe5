"""A kubeconfig: its faults, and its credentials, which change while a process runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("kubernetes")

from kubernetes.client import ApiClient, ApiException
from kubernetes.config import kube_config

from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube import kubeconfig
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import path, request_object
from swe_argo.steps.sandbox.kubernetes.exec import Exec, ExecRefused
from tests.kube_api import KubeApi, serving, write_kubeconfig

Find = Callable[..., Cluster]


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Find:
    """Return a function that finds the cluster of a kubeconfig file."""

    def find(file: Path, context: str | None = None) -> Cluster:
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))  # KUBECONFIG at its import
        return kubeconfig.find_cluster(KubernetesSpec(context=context))

    return find


def broken(folder: Path) -> Path:
    (folder / "broken").write_text("clusters: [")
    return folder / "broken"


def without_plugin(folder: Path) -> Path:
    """Return a kubeconfig whose credentials program does not exist."""
    file = write_kubeconfig(folder, "https://127.0.0.1:1", "one")
    config = json.loads(file.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program", "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": plugin}
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize(
    ("make", "context", "reason"),
    [
        (lambda folder: folder / "none", None, "set a kubeconfig with KUBECONFIG"),
        (broken, None, "the kubeconfig is not YAML"),
        (
            lambda folder: write_kubeconfig(folder, "https://127.0.0.1:1", "one", "two"),
            "three",
            "context: there is no context 'three' in the kubeconfig; it has one, two",
        ),
        (without_plugin, None, "context: the credentials program of one in the kubeconfig failed: .*no-such-program"),
    ],
    ids=["none", "broken", "context", "plugin"],
)
def test_find_cluster_names_the_fault(
    tmp_path: Path, find: Find, make: Callable[[Path], Path], context: str | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        find(make(tmp_path), context)
    assert "\n" not in str(caught.value)


def list_status(client: ApiClient) -> int:
    try:
        request_object(client, "GET", path("pods", "evals"))
    except ApiException as error:
        return int(error.status)
    return 200


def exec_status(shell: Exec) -> int:
    """Return the status of an exec; if it is authorized, that is 404, because the fake serves none."""
    with pytest.raises(ExecRefused) as refused:
        shell.once("true")
    return refused.value.status


@pytest.mark.parametrize("inline", [{}, {"token": "stale"}], ids=["file", "file and token"])
def test_token_file_is_reread(tmp_path: Path, find: Find, inline: dict[str, str]) -> None:
    token, api = tmp_path / "token", KubeApi()
    token.write_text("first\n")
    with serving(api):
        user = {"tokenFile": "token", **inline}
        cluster = find(write_kubeconfig(tmp_path, api.url, "here", user=user, namespace="evals"))
        shell = Exec(cluster, "sb-1")
        with cluster.client() as client:
            for accepted, written, expected in (
                ("first", "first\n", (200, 404)),
                ("second", "second", (200, 404)),
                ("second", "", (200, 404)),
                ("third", "", (401, 401)),
                ("third", "third", (200, 404)),
            ):
                api.token = accepted
                token.write_text(written)
                assert (list_status(client), exec_status(shell)) == expected


def test_account_token_is_reread_in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"namespace": "evals", "token": "first\n", "ca.crt": "ca"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = kubeconfig.find_cluster(KubernetesSpec()).configuration
    for token in ("first", "second"):
        (tmp_path / "token").write_text(token)
        assert configuration.auth_settings()["BearerToken"]["value"] == f"Bearer {token}"
    (tmp_path / "token").unlink()
    assert configuration.auth_settings()["BearerToken"]["value"] == "Bearer second"
