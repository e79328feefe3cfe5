"""Sandboxes and snapshots that runs left at E2B: those of a run on a cluster are found by its run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.ids import store_id
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.host.folders import process_owner
from swe_argo.steps.sandbox.e2b.backend import E2BBackend
from swe_argo.steps.sandbox.groups import GroupMember, SnapshotRecord, group_notices, list_dead_groups
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.store import open_store
from tests.steps.argo.api_server import serving
from tests.steps.reports.synthetic import Synthetic
from tests.steps.sandbox.e2b.lab import E2BLab, laboratory
from tests.steps.test_finalize import PARENT, RUN, World
from tests.workflows.command import call

OTHER_STORE = "s3://of-another-team"


@pytest.fixture
def lab(tmp_path: Path, checkout: Path) -> Iterator[E2BLab]:
    with laboratory(tmp_path, checkout) as lab:
        yield lab


@pytest.fixture
def world(tmp_path: Path, lab: E2BLab) -> Iterator[World]:
    with serving() as api:
        environment = {**lab.server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}
        world = World(api, open_store(str(tmp_path / "store"), create=True), tmp_path, environment)
        Synthetic(instances=2, mix={"not_run": 1}, spec={"sandbox": {"backend": "e2b"}}).write(world.store)
        yield world


def leave(lab: E2BLab, name: str, run: str, store: str) -> str:
    """Create a sandbox as the pod of a step does, and end the pod."""
    labels = {"run": run, "instance": "i", "attempt": "1", "role": "solve"}
    box = lab.make(name=name, labels=labels, store_id=store_id(store))
    lab.machine(box).metadata["owner"] = "step-pod-1/pid:[4026531836]:1:1"
    return name


def names(lab: E2BLab) -> set[str]:
    return {machine.metadata["name"] for machine in lab.server.machines.list_all()}


def test_finalize_removes_its_run_only(world: World, lab: E2BLab) -> None:
    store = world.store.url
    own = {leave(lab, "sb-1", RUN, store), leave(lab, "sb-2", RUN, store)}
    foreign = {leave(lab, "sb-3", "other", store), leave(lab, "sb-4", RUN, OTHER_STORE)}
    assert E2BBackend.find_orphans() == {}
    result = world.finalize()
    assert result.returncode == 0, result.stderr
    assert (names(lab), result.stderr) == (foreign, f"removed: {', '.join(sorted(own))}\n")
    assert not [path for _, path, _ in world.api.requests if "swe-argo%2Frole" in path], "there are no such pods"


def test_finalize_works_without_run_file(world: World, lab: E2BLab) -> None:
    leave(lab, "sb-1", RUN, world.store.url)
    (Path(world.store.url) / "runs" / RUN / "run.json").write_text("{", "utf-8")
    assert "removed: sb-1\n" in world.finalize().stderr
    assert names(lab) == set()


def test_finalize_reports_a_refused_key(world: World) -> None:
    world.variables = {**world.variables, "E2B_API_KEY": "e2b_" + "1" * 40}
    result = world.finalize()
    assert result.returncode == 64
    assert "E2B refused the key" in result.stderr
    assert world.summary().headline.total == 2, PARENT


def test_clean_finds_sandboxes_by_run(lab: E2BLab) -> None:
    leave(lab, "sb-1", RUN, "s3://one")
    leave(lab, "sb-2", "other", "s3://one")
    leave(lab, "sb-3", RUN, OTHER_STORE)
    assert "E2B: sb-" not in call("clean").stdout
    listed = call("clean", "--run-id", RUN).stdout
    assert "e2b E2B: sb-1\n" in listed
    assert "sb-2" not in listed
    assert names(lab) == {"sb-1", "sb-2", "sb-3"}
    assert call("clean", "--run-id", RUN, "--store", "s3://one", "--yes").returncode == 0
    assert names(lab) == {"sb-2", "sb-3"}
    assert call("clean", "--run-id", RUN, "--yes").returncode == 0
    assert names(lab) == {"sb-2"}


# -- snapshots of groups

GROUP = "sweargo-group-0123456789abcdef"


@pytest.fixture
def group(lab: E2BLab, tmp_path: Path) -> Path:
    """The folder of a dead runner's group, which has a snapshot at E2B whose answer was lost."""
    group = tmp_path / "home" / "groups" / "dead"
    group.mkdir(parents=True)
    lab.server.machines.templates[f"team/{GROUP}:default"] = "snapshot"
    (group / "sandbox.json").write_text(SandboxSpec(backend="e2b").model_dump_json())
    (group / "i.json").write_text(SnapshotRecord(name=GROUP).model_dump_json())
    (group / "owner").write_text(f"{process_owner().partition(':')[0]}:999999999:1")
    return group


def test_clean_removes_dead_snapshots(lab: E2BLab, group: Path) -> None:
    assert f"snapshot {GROUP}" in call("clean").stdout
    assert call("clean", "--yes").returncode == 0
    assert len(lab.server.machines.templates) == 1
    assert "snapshot" not in call("clean").stdout


@pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
def test_dead_preparers_snapshot_is_removed(lab: E2BLab, group: Path) -> None:
    box = lab.make()
    with (group / "i.lock").open("ab") as lock:
        member = GroupMember(group / "i.json", lock)
        assert member.is_preparer
        member.set_machine(lab.backend, box)
        member.take_snapshot({})
    assert GroupMember(group / "i.json").snapshot in lab.server.control.snapshots
    assert len(lab.server.machines.templates) == 3
    assert list_dead_groups().remove() == {}
    assert len(lab.server.machines.templates) == 1


@pytest.mark.parametrize(
    ("backend", "is_grouped", "attempts", "notice"),
    [
        ("e2b", False, 8, ""),
        ("e2b", True, 8, ""),
        ("e2b", True, 1, "with one attempt"),
        ("docker", True, 8, "docker has no snapshots"),
    ],
)
def test_group_notices_explain_why_not(backend: str, is_grouped: bool, attempts: int, notice: str) -> None:
    spec = SandboxSpec.model_validate({"backend": backend, "group_from_snapshot": is_grouped})
    notices = group_notices(spec, attempts)
    assert len(notices) == bool(notice)
    assert notice in "".join(notices)
