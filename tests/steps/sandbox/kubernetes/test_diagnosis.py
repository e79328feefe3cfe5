"""What a person is told of a cluster before a run: by ``swe-argo doctor``, and by ``clean`` of its orphans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.sandbox.kubernetes.namespace import CONFIG_MAP
from tests.http_server import Handler, serve
from tests.kube_api import NAMESPACE, write_kubeconfig
from tests.workflows.command import swe_argo


class _Charted(Handler):
    """An API server with nothing but the chart's settings."""

    def respond(self) -> None:
        if self.path == "/version":
            self.answer(200, {"gitVersion": "v1.34.0"})
        elif self.path.startswith(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}"):
            self.answer(200, {"data": {}})
        elif "/api/v1/namespaces/charted-not/configmaps" in self.path:
            self.answer(404, {"kind": "Status", "message": "not found"})
        else:
            self.answer(200, {"items": []})


@pytest.fixture
def address() -> Iterator[str]:
    with serve(_Charted) as address:
        yield address


def kubernetes_line(*words: str, kubeconfig: str) -> str:
    """What doctor says of the backend."""
    result = swe_argo("doctor", *words, env={"KUBECONFIG": kubeconfig, "COLUMNS": "200"})
    [line] = re.findall(r"^backend kubernetes +(.*?) *$", result.stdout, re.MULTILINE)
    return str(line)


def clean(*words: str, kubeconfig: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of clean, with no folders or containers of others on this machine."""
    env = {"KUBECONFIG": kubeconfig, "TMPDIR": str(folder), "DOCKER_HOST": f"unix://{folder}/none.sock"}
    result = swe_argo("clean", *words, env=env)
    return result.returncode, result.stdout.strip(), result.stderr.strip()


def test_doctor_describes_a_cluster(address: str, tmp_path: Path) -> None:
    kubeconfig = str(write_kubeconfig(tmp_path, address, "here", namespace=NAMESPACE))
    assert kubernetes_line(kubeconfig=kubeconfig) == f"yes  v1.34.0, namespace {NAMESPACE} of context here"
    bare = swe_argo("doctor", "--namespace", "charted-not", env={"KUBECONFIG": kubeconfig, "COLUMNS": "200"}).stdout
    assert "v1.34.0, namespace charted-not of context here" in bare
    assert "the chart is not installed, so sandboxes are not confined" in bare


def test_doctor_reports_absent_cluster(tmp_path: Path) -> None:
    away = str(write_kubeconfig(tmp_path, "http://127.0.0.1:9", "here"))
    assert kubernetes_line(kubeconfig=away).startswith("no   namespace default of context here does not answer: ")
    assert kubernetes_line(kubeconfig=str(tmp_path / "none")).startswith("-    no cluster: ")


def test_clean_skips_an_unnamed_cluster(address: str, tmp_path: Path) -> None:
    here = str(write_kubeconfig(tmp_path, address, "here", namespace=NAMESPACE))
    assert clean("--namespace", NAMESPACE, kubeconfig=here, folder=tmp_path) == (0, "no orphaned sandboxes", "")
    none = str(tmp_path / "none")
    assert clean(kubeconfig=none, folder=tmp_path) == (0, "no orphaned sandboxes", "")
    code, _, message = clean("--kube-context", "there", kubeconfig=none, folder=tmp_path)
    assert (code, len(message.splitlines())) == (64, 1)
    (tmp_path / "broken").write_text("[")
    code, output, _ = clean(kubeconfig=str(tmp_path / "broken"), folder=tmp_path)
    assert code == 0
    assert output.startswith("kubernetes: skipped: sandbox.backend: the kubeconfig is not YAML")
