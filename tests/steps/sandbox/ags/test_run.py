"""Whole runs of the bundled dataset in sandboxes of the test server: the verdicts of backend local."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.datasets import mini
from swe_argo.steps.datasets.mini.forms import image_by_id
from swe_argo.steps.sandbox.local import bubblewrap
from tests import solutions
from tests.model_server import model_server
from tests.steps.sandbox.ags.runs import BACKEND
from tests.steps.sandbox.ags.server import AGSServer
from tests.workflows.command import QUICK, begin, ids, summary, swe_argo

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))

QUOTA = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AGSServer]:
    images = image_by_id("mini").values()
    server = AGSServer(tmp_path / "home" / "images", {image: image for image in images}, quota=QUOTA)
    server.add_shared_tools()
    (tmp_path / "mini_ags.py").write_text(BACKEND, "utf-8")
    with server.running():
        yield server


def env_of(server: AGSServer, folder: Path) -> dict[str, str]:
    return {**server.variables, "E2B_API_KEY": "", "SWE_ARGO_HOME": str(folder / "home")}


@pytest.mark.slow
def test_run_resolves_and_cleans_up(server: AGSServer, tmp_path: Path) -> None:
    words = ["run", "--store", "store", "--run-id", "r", "--agent", "gold", "--agent-timeout", "900", *ids(*QUICK[:2])]
    result = swe_argo(*words, "--backend", "mini_ags.py:connect", cwd=tmp_path, env=env_of(server, tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path / "store"), "r").headline.resolved == 2
    assert len(server.control.starts) >= 2
    assert server.machines.list_all() == []


@pytest.mark.long
@pytest.mark.parametrize("agent", ["gold", "idle"])
def test_run_has_the_verdicts_of_local(server: AGSServer, tmp_path: Path, agent: str) -> None:
    """Long: in make test E2B's runs are compared so, and these sandboxes are driven by the same code."""
    words = ["run", "--store", "store", "--agent", agent, "--agent-timeout", "900", *ids(*QUICK)]
    for name, backend in (("local", "local"), ("remote", "mini_ags.py:connect")):
        result = swe_argo(*words, "--run-id", name, "--backend", backend, cwd=tmp_path, env=env_of(server, tmp_path))
        assert result.returncode == 0, result.stdout + result.stderr
    local, remote = (summary(str(tmp_path / "store"), name) for name in ("local", "remote"))
    assert remote.headline.resolved == local.headline.resolved == (len(QUICK) if agent == "gold" else 0)
    assert len(server.control.starts) >= len(QUICK)
    assert server.machines.list_all() == []


@pytest.mark.long
def test_scaffold_solves_as_locally(server: AGSServer, tmp_path: Path) -> None:
    with model_server(solutions.solving("r2egym"), key="test-key") as endpoint:
        words = ["--agent", "r2egym", "--model", "openai/scripted", "--base-url", endpoint.url, *ids(*QUICK[:2])]
        result = swe_argo(
            *("run", "--store", "store", "--run-id", "scaffold", "--backend", "mini_ags.py:connect", *words),
            *("--agent-timeout", "900", "--use-fn-calling", "true"),
            cwd=tmp_path,
            env={**env_of(server, tmp_path), "OPENAI_API_KEY": "test-key"},
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path / "store"), "scaffold").headline.resolved == 2
    networks = {body["ToolName"] for body in server.control.starts}
    assert networks == {"swe-argo-sandbox", "swe-argo-public"}
    assert server.machines.list_all() == []


@pytest.mark.long
def test_workers_share_ten_sandboxes(server: AGSServer, tmp_path: Path) -> None:
    words = ["run", "--store", "store", "--run-id", "many", "--agent", "gold", "--attempts", "5", *ids(*QUICK)]
    result = swe_argo(
        *words, "--workers", "20", "--backend", "mini_ags.py:connect", cwd=tmp_path, env=env_of(server, tmp_path)
    )
    assert result.returncode == 0, result.stdout + result.stderr
    headline = summary(str(tmp_path / "store"), "many").headline
    assert headline.resolved == len(QUICK)
    assert server.control.most_at_once <= QUOTA
    assert server.machines.list_all() == []


@pytest.mark.slow
@pytest.mark.long
def test_run_reports_waiting_for_quota(server: AGSServer, tmp_path: Path) -> None:
    server.control.quota = 1
    image = image_by_id("mini")[QUICK[0]]
    mini.prepare(tmp_path / "home" / "images", {QUICK[0]: image})
    blocker = server.machines.create(image, 600, {}, network=False)
    words = [
        "run",
        "--store",
        str(tmp_path / "store"),
        "--run-id",
        "waits",
        "--agent",
        "gold",
        "--counter-proof",
        "never",
    ]
    backend = f"{tmp_path / 'mini_ags.py'}:connect"
    process = begin(*words, *ids(QUICK[0]), "--backend", backend, env=env_of(server, tmp_path))
    assert process.stdout is not None
    lines = []
    with process.stdout as printed:
        for line in printed:
            lines.append(line)
            if line.startswith("note: AGS in ap-shanghai has had no room for another sandbox for 1"):
                server.machines.kill(blocker.number)
    assert process.wait() == 0, lines
    assert sum("waiting: 1 of the account's 1 sandboxes run" in line for line in lines) == 1
    assert summary(str(tmp_path / "store"), "waits").headline.resolved == 1
