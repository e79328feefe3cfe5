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
    asked = cluster(host)
    with asked.client() as client, pytest.raises(ConfigError) as refused:
        check_namespace(asked, client, SandboxSpec(backend="kubernetes"))
    return refused.value.reason


@contextmanager
def answering(status: int, body: str | dict[str, str]) -> Iterator[str]:
    """A server that gives every GET this answer."""

    class Same(Handler):
        def respond(self) -> None:
            self.answer(status, body)

    with serve(Same) as address:
        yield address


def test_a_server_that_is_not_there_is_named_with_its_context() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    told = refusal(f"https://127.0.0.1:{port}")
    assert told.startswith(f"sandbox.backend: the API server of far-away (https://127.0.0.1:{port}) does not answer:")
    assert "Connection refused" in told
    assert "0x" not in told


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "FIRST_S", (0.5, 0.5))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert "timed out" in refusal(f"http://127.0.0.1:{mute.getsockname()[1]}")


def test_a_name_that_is_no_host_is_told() -> None:
    assert "does not answer" in refusal("https://no-such-cluster.invalid:6443")


def test_a_web_server_is_no_api_server() -> None:
    with answering(404, "<html>not here</html>") as host:
        assert f"far-away ({host}) is no Kubernetes API server" in refusal(host)


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "Unauthorized"), (403, 'namespaces "evals" is forbidden: User "system:anonymous" cannot get resource')],
)
def test_credentials_that_are_not_known_are_told(status: int, message: str) -> None:
    with answering(status, {"kind": "Status", "message": message}) as host:
        assert refusal(host).startswith(
            f"sandbox.kubernetes.context: far-away ({host}) does not accept the credentials"
        )


def run(kubeconfig: Path, folder: Path, *words: str) -> str:
    """What swe-argo says, in one line; it writes nothing."""
    store = folder / "store"
    done = swe_argo(
        *("run", "--backend", "kubernetes", "--dataset", "mini", "--agent", "gold", "--store", str(store), *words),
        env={"KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder)},
    )
    assert done.returncode == 64, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not [path for path in folder.rglob("*") if path.is_file() and path != kubeconfig]
    return done.stderr


def test_without_a_kubeconfig_a_run_says_how_to_name_one(tmp_path: Path) -> None:
    assert "name a kubeconfig with KUBECONFIG" in run(tmp_path / "none", tmp_path)


def test_an_unknown_context_is_told_with_those_there_are(tmp_path: Path) -> None:
    told = run(write_kubeconfig(tmp_path, NOBODY, "one", "two"), tmp_path, "--kube-context", "three")
    assert "sandbox.kubernetes.context: there is no context 'three' in the kubeconfig; it has one, two" in told


def test_a_kubeconfig_that_is_no_yaml_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("clusters: [")
    assert "the kubeconfig is no YAML" in run(broken, tmp_path)


def test_a_program_for_credentials_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, NOBODY, "one")
    whole = json.loads(path.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-program", "interactiveMode": "Never"}
    whole["users"][0]["user"] = {"exec": plugin}
    path.write_text(json.dumps(whole))
    told = run(path, tmp_path)
    assert "sandbox.kubernetes.context: the program that the kubeconfig names for the credentials of one failed" in told
    assert "no-such-program" in told


def test_a_run_against_a_dead_cluster_ends_with_one_line(tmp_path: Path) -> None:
    told = run(write_kubeconfig(tmp_path, NOBODY, "one"), tmp_path)
    assert "the API server of context one (https://127.0.0.1:1) does not answer" in told
