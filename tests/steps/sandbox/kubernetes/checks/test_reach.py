"""Clusters that are not there, and kubeconfigs that name none."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.sandbox.kubernetes.checks import reach
from swe_argo.steps.sandbox.kubernetes.checks.reach import check_namespace
from tests.http_server import Handler, serve
from tests.kube_api import write_kubeconfig
from tests.workflows.command import swe_argo

NOBODY = "https://127.0.0.1:1"


def cluster(host: str) -> Cluster:
    from kubernetes.client import Configuration

    configuration = Configuration(host=host)
    configuration.retries = False
    return Cluster(configuration, "evals", "far-away")


def refusal(host: str) -> str:
    target = cluster(host)
    with target.client() as client, pytest.raises(ConfigError) as refused:
        check_namespace(target, client, SandboxSpec(backend="kubernetes"))
    return refused.value.reason


@contextmanager
def answering(status: int, body: str | dict[str, str]) -> Iterator[str]:
    """A server that gives every GET this answer."""

    class Same(Handler):
        def respond(self) -> None:
            self.answer(status, body)

    with serve(Same) as address:
        yield address


def test_absent_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    message = refusal(f"https://127.0.0.1:{port}")
    assert message.startswith(
        f"sandbox.backend: the API server of far-away (https://127.0.0.1:{port}) does not answer:"
    )
    assert "Connection refused" in message
    assert "0x" not in message


def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "FIRST_S", (0.5, 0.5))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert "timed out" in refusal(f"http://127.0.0.1:{mute.getsockname()[1]}")


def test_unknown_host_is_reported() -> None:
    assert "does not answer" in refusal("https://no-such-cluster.invalid:6443")


def test_web_server_is_no_api_server() -> None:
    with answering(404, "<html>not here</html>") as host:
        assert f"far-away ({host}) is not a Kubernetes API server" in refusal(host)


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "Unauthorized"), (403, 'namespaces "evals" is forbidden: User "system:anonymous" cannot get resource')],
)
def test_unknown_user_is_reported(status: int, message: str) -> None:
    with answering(status, {"kind": "Status", "message": message}) as host:
        assert refusal(host).startswith(
            f"sandbox.kubernetes.context: far-away ({host}) rejected the kubeconfig's credentials"
        )


def run(kubeconfig: Path, folder: Path, *words: str) -> str:
    """What swe-argo says, in one line; it writes nothing."""
    store = folder / "store"
    result = swe_argo(
        *("run", "--backend", "kubernetes", "--dataset", "mini", "--agent", "gold", "--store", str(store), *words),
        env={"KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder)},
    )
    assert result.returncode == 64, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not [path for path in folder.rglob("*") if path.is_file() and path != kubeconfig]
    return result.stderr


def test_missing_kubeconfig_is_explained(tmp_path: Path) -> None:
    assert "set a kubeconfig with KUBECONFIG" in run(tmp_path / "none", tmp_path)


def test_unknown_context_lists_others(tmp_path: Path) -> None:
    message = run(write_kubeconfig(tmp_path, NOBODY, "one", "two"), tmp_path, "--kube-context", "three")
    assert "sandbox.kubernetes.context: there is no context 'three' in the kubeconfig; it has one, two" in message


def test_bad_kubeconfig_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("clusters: [")
    assert "the kubeconfig is not YAML" in run(broken, tmp_path)


def test_missing_plugin_is_named(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, NOBODY, "one")
    whole = json.loads(path.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program", "interactiveMode": "Never"}
    whole["users"][0]["user"] = {"exec": plugin}
    path.write_text(json.dumps(whole))
    message = run(path, tmp_path)
    assert "sandbox.kubernetes.context: the credentials program of one in the kubeconfig failed" in message
    assert "no-such-program" in message


def test_run_on_dead_cluster_is_one_line(tmp_path: Path) -> None:
    message = run(write_kubeconfig(tmp_path, NOBODY, "one"), tmp_path)
    assert "the API server of context one (https://127.0.0.1:1) does not answer" in message
