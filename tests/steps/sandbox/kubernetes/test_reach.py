"""A cluster that cannot be reached, by the check before a run, ``swe-argo run``, ``doctor`` and ``clean``."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes.client import Configuration
from kubernetes.config import kube_config

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import Cluster, RetryPolicy
from swe_argo.steps.sandbox.docker.engine import connect_engine
from swe_argo.steps.sandbox.kubernetes.checks import rights
from swe_argo.steps.sandbox.kubernetes.checks.rights import check_namespace
from swe_argo.steps.sandbox.kubernetes.namespace import CONFIG_MAP
from tests.http_server import Handler, serve
from tests.kube_api import NAMESPACE, write_kubeconfig
from tests.workflows.command import call

NOBODY = "https://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "FIRST", RetryPolicy(total_s=0.1, first_s=0.01, rights_s=0.0))


def refusal(host: str) -> str:
    configuration = Configuration(host=host)
    configuration.retries = False
    target = Cluster(configuration, "evals", "far-away")
    with target.client() as client, pytest.raises(ConfigError) as refused:
        check_namespace(target, client, SandboxSpec(backend="kubernetes"))
    return refused.value.reason


@contextmanager
def answering(answer: Callable[[str], tuple[int, str | dict[str, object]]]) -> Iterator[str]:
    """Yield the address of a server that answers requests by their path."""

    class Api(Handler):
        def respond(self) -> None:
            self.answer(*answer(self.path))

    with serve(Api) as address:
        yield address


def test_absent_server_is_named() -> None:
    message = refusal(NOBODY)
    assert message.startswith(f"sandbox.backend: the API server of far-away ({NOBODY}) does not answer:")
    assert "Connection refused" in message
    assert "0x" not in message
    assert "does not answer" in refusal("https://no-such-cluster.invalid:6443")


def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "FIRST_S", (0.5, 0.5))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in refusal(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, "<html>not here</html>", "far-away ({}) is not a Kubernetes API server"),
        (401, {"message": "Unauthorized"}, "context: far-away ({}) rejected the kubeconfig's credentials"),
        (
            403,
            {"message": 'namespaces "evals" is forbidden: User "system:anonymous" cannot get resource'},
            "context: far-away ({}) rejected the kubeconfig's credentials",
        ),
    ],
)
def test_foreign_answer_is_explained(status: int, body: str | dict[str, object], expected: str) -> None:
    body = {"kind": "Status", **body} if isinstance(body, dict) else body
    with answering(lambda _: (status, body)) as host:
        assert expected.format(host) in refusal(host)


def test_run_on_dead_cluster_is_one_line(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, NOBODY, "one")
    words = ["run", "--backend", "kubernetes", "--dataset", "mini", "--agent", "gold", "--store", f"{tmp_path}/store"]
    result = call(*words, env={"KUBECONFIG": str(path), "TMPDIR": str(tmp_path)})
    assert (result.returncode, len(result.stderr.splitlines())) == (64, 1), result.stderr
    assert "the API server of context one (https://127.0.0.1:1) does not answer" in result.stderr
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


# -- doctor and clean


@pytest.fixture
def chart() -> Iterator[str]:
    """The address of an API server that has only the chart's settings."""

    def answer(path: str) -> tuple[int, str | dict[str, object]]:
        if path == "/version":
            return 200, {"gitVersion": "v1.34.0"}
        if path.startswith(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}"):
            return 200, {"data": {}}
        if "/api/v1/namespaces/charted-not/configmaps" in path:
            return 404, {"kind": "Status", "message": "not found"}
        return 200, {"items": []}

    with answering(answer) as address:
        yield address


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs the command line in this process with a kubeconfig, and without Docker."""

    def run(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))  # KUBECONFIG at its import
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        connect_engine.cache_clear()
        env = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "COLUMNS": "200"}
        return call(*words, env=env)

    return run


def doctor_line(command: Command, kubeconfig: Path, *words: str) -> str:
    """Return doctor's line about the backend."""
    output = command(kubeconfig, "doctor", *words).stdout
    [line] = re.findall(r"^backend kubernetes +(.*?) *$", output, re.MULTILINE)
    return str(line)


def test_doctor_describes_a_cluster(chart: str, tmp_path: Path, command: Command) -> None:
    here = write_kubeconfig(tmp_path, chart, "here", namespace=NAMESPACE)
    assert doctor_line(command, here) == f"yes  v1.34.0, namespace {NAMESPACE} of context here"
    bare = command(here, "doctor", "--namespace", "charted-not").stdout
    assert "v1.34.0, namespace charted-not of context here" in bare
    assert "the chart is not installed, so sandboxes are not confined" in bare


def test_doctor_reports_absent_cluster(tmp_path: Path, command: Command) -> None:
    away = write_kubeconfig(tmp_path, "http://127.0.0.1:9", "here")
    assert doctor_line(command, away).startswith("no   namespace default of context here does not answer: ")
    assert doctor_line(command, tmp_path / "none").startswith("-    no cluster: ")


def test_clean_skips_an_unnamed_cluster(chart: str, tmp_path: Path, command: Command) -> None:
    here = write_kubeconfig(tmp_path, chart, "here", namespace=NAMESPACE)
    none, broken = tmp_path / "none", tmp_path / "broken"
    broken.write_text("[")
    for result in (command(here, "clean", "--namespace", NAMESPACE), command(none, "clean")):
        assert (result.returncode, result.stdout, result.stderr) == (0, "no orphaned sandboxes\n", "")
    refused = command(none, "clean", "--kube-context", "there")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (64, 1)
    skipped = command(broken, "clean")
    assert skipped.returncode == 0
    assert skipped.stdout.startswith("kubernetes: skipped: sandbox.backend: the kubeconfig is not YAML")
