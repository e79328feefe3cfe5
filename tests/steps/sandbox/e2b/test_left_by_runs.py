"""What a run on a cluster left at the provider: found by its run, for its owners are pods that nobody here can see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.ids import store_id
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.sandbox.e2b.backend import connect
from swe_argo.steps.sandbox.e2b.orphans import e2b_sandboxes
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.sandbox.readiness import SandboxNeeds, ready
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.steps.argo.api_server import serving
from tests.steps.reports.synthetic import Synthetic
from tests.steps.sandbox.e2b.server import E2BServer
from tests.steps.test_finalize import PARENT, RUN, World
from tests.workflows.command import swe_argo

IMAGE = "test/image:1"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[E2BServer]:
    (tmp_path / "images" / "test__image:1" / "testbed").mkdir(parents=True)
    server = E2BServer(tmp_path / "images", {template_name(IMAGE): IMAGE})
    with server.running():
        for name, value in {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}.items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()
        yield server
    settings.cache_clear()


@pytest.fixture
def world(tmp_path: Path, server: E2BServer) -> Iterator[World]:
    with serving() as api:
        world = World(api, open_store(str(tmp_path / "store"), create=True), tmp_path, server.variables)
        Synthetic(instances=2, mix={"not_run": 1}, spec={"sandbox": {"backend": "e2b"}}).write(world.store)
        yield world


def leave(server: E2BServer, name: str, run: str, store: str) -> str:
    """A sandbox that the pod of a step made, which is gone."""
    backend = connect(SandboxSpec.model_validate({"backend": "e2b", "e2b": {"creations_per_second": 100}}))
    labels = {"run": run, "instance": "i", "attempt": "1", "role": "solve"}
    box = backend.create(SandboxRequest(name, IMAGE, 3600, network=False, labels=labels, store_id=store_id(store)))
    machine = server.machines.find(box.transport.sandbox_id)
    assert machine is not None
    machine.metadata["owner"] = "step-pod-1/pid:[4026531836]:1:1"
    return name


def names(server: E2BServer) -> set[str]:
    return {machine.metadata["name"] for machine in server.machines.list_all()}


def test_finalize_removes_its_run_only(world: World, server: E2BServer) -> None:
    store = world.store.url
    own = {leave(server, "sb-1", RUN, store), leave(server, "sb-2", RUN, store)}
    foreign = {leave(server, "sb-3", "other", store), leave(server, "sb-4", RUN, "s3://of-another-team")}
    assert e2b_sandboxes().find_orphans() == {}
    result = world.finalize()
    assert result.returncode == 0, result.stderr
    assert (names(server), result.stderr) == (foreign, f"removed: {', '.join(sorted(own))}\n")
    assert not [path for _, path, _ in world.api.requests if "swe-argo%2Frole" in path]  # there are no such pods


def test_finalize_works_without_run_file(world: World, server: E2BServer) -> None:
    leave(server, "sb-1", RUN, world.store.url)
    (Path(world.store.url) / "runs" / RUN / "run.json").write_text("{", "utf-8")
    result = world.finalize()
    assert "removed: sb-1\n" in result.stderr
    assert names(server) == set()


def test_finalize_reports_a_refused_key(world: World) -> None:
    world.variables = {**world.variables, "E2B_API_KEY": "e2b_" + "1" * 40}
    result = world.finalize()
    assert result.returncode == 64
    assert "E2B refused the key" in result.stderr
    assert world.summary().headline.total == 2, PARENT


def test_clean_finds_sandboxes_by_run(server: E2BServer, tmp_path: Path) -> None:
    leave(server, "sb-1", RUN, "s3://one")
    leave(server, "sb-2", "other", "s3://one")
    env = {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}
    assert "E2B: sb-" not in swe_argo("clean", cwd=tmp_path, env=env).stdout
    listed = swe_argo("clean", "--run-id", RUN, cwd=tmp_path, env=env).stdout
    assert "e2b E2B: sb-1\n" in listed
    assert "sb-2" not in listed
    assert names(server) == {"sb-1", "sb-2"}
    assert swe_argo("clean", "--run-id", RUN, "--yes", cwd=tmp_path, env=env).returncode == 0
    assert names(server) == {"sb-2"}


def test_clean_spares_other_stores(server: E2BServer, tmp_path: Path) -> None:
    leave(server, "sb-1", RUN, "s3://one")
    leave(server, "sb-2", RUN, "s3://of-another-team")
    env = {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}
    words = ["clean", "--run-id", RUN, "--store", "s3://one", "--yes"]
    assert swe_argo(*words, cwd=tmp_path, env=env).returncode == 0
    assert names(server) == {"sb-2"}


@pytest.mark.parametrize(("units", "tells"), [("20", False), ("50", True)])
def test_plan_warns_of_too_many_units(
    server: E2BServer, monkeypatch: pytest.MonkeyPatch, units: str, tells: bool
) -> None:
    monkeypatch.setenv("SWE_ARGO_UNITS", units)
    settings.cache_clear()
    needs = SandboxNeeds([IMAGE], acts=True, solves=True, grading_network=True, timeout_s=60)
    notices = ready(SandboxSpec(backend="e2b"), needs).notices
    assert len(notices) == tells
    assert all("50 units" in notice and "limits.units=20" in notice for notice in notices)
