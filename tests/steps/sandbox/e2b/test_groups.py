"""Attempts that begin from one prepared sandbox: one preparation a group, and the verdicts of attempts that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.datasets import mini
from swe_argo.steps.datasets.mini.forms import image_by_id
from swe_argo.steps.host.folders import process_owner
from swe_argo.steps.sandbox.e2b.backend import connect
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.group_folders import group_notices, list_dead_groups
from swe_argo.steps.sandbox.groups import GroupMember, SnapshotRecord
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.cluster.disturbances import recordings
from tests.steps.sandbox.e2b.server import E2BServer
from tests.workflows.command import QUICK, swe_argo

pytestmark = [pytest.mark.long, pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))]

INSTANCE = QUICK[1]
GROUP = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[E2BServer]:
    images = {INSTANCE: image_by_id("mini")[INSTANCE]}
    mini.prepare(tmp_path / "images", images, "mini")
    server = E2BServer(tmp_path / "images", {template_name(image): image for image in images.values()})
    with server.running():
        yield server


def run(server: E2BServer, folder: Path, run_id: str, *flags: str, attempts: int = GROUP) -> str:
    """A run of recorded actions; what it printed."""
    if not (folder / "recorded").is_dir():
        recordings(folder / "recorded", [INSTANCE])
    words = ["--store", "store", "--run-id", run_id, "--backend", "e2b", "--e2b-creations-per-second", "50", "-j", "4"]
    words += ["--trajectories", "recorded", "-i", INSTANCE, "--attempts", str(attempts), "--agent-timeout", "600"]
    words += ["--counter-proof", "never"]
    result = swe_argo(
        "run", *words, *flags, cwd=folder, env={**server.variables, "SWE_ARGO_HOME": str(folder / "home")}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def count_start_sources(server: E2BServer) -> Counter[str]:
    """What sandboxes of agents were made from."""
    template_ids = [body["templateID"] for body in server.control.creates if body["metadata"]["role"] == "solve"]
    return Counter("snapshot" if template_id in server.control.snapshots else "image" for template_id in template_ids)


def outcomes(folder: Path, run_id: str, attempts: int) -> list[object]:
    """What each attempt came to: the verdict, the patch, what was hidden before."""
    store = open_store(str(folder / "store"))
    results: list[object] = []
    for attempt in range(1, attempts + 1):
        grade = GradeRecord.from_bytes(store.get(key(GradeRecord, run_id, INSTANCE, attempt)))
        solved = SolveRecord.from_bytes(store.get(key(SolveRecord, run_id, INSTANCE, attempt)))
        patch = store.get(f"runs/{run_id}/units/{INSTANCE}/{attempt}/patch.diff")
        results.append((grade.outcome, grade.fail_to_pass, grade.pass_to_pass, patch, solved.history))
    return results


@pytest.mark.slow
def test_group_is_prepared_once(server: E2BServer, tmp_path: Path) -> None:
    run(server, tmp_path, "with", "--group-from-snapshot")
    assert count_start_sources(server) == {"image": 1, "snapshot": GROUP - 1}
    assert len(server.control.snapshots) == 1
    assert not set(server.control.snapshots) & server.machines.templates.keys()  # removed at the end
    assert list((tmp_path / "home" / "groups").iterdir()) == []
    run(server, tmp_path, "without", attempts=1)
    assert count_start_sources(server) == {"image": 2, "snapshot": GROUP - 1}
    [one] = outcomes(tmp_path, "without", 1)
    assert outcomes(tmp_path, "with", GROUP) == [one] * GROUP
    assert server.machines.list_all() == []


@pytest.mark.slow
def test_attempts_work_without_snapshots(server: E2BServer, tmp_path: Path) -> None:
    server.faults.refused_snapshots = 100
    run(server, tmp_path, "with", "--group-from-snapshot", attempts=2)
    assert count_start_sources(server) == {"image": 2}
    assert len(outcomes(tmp_path, "with", 2)) == 2


@pytest.mark.slow
def test_clean_removes_dead_snapshots(server: E2BServer, tmp_path: Path) -> None:
    group = tmp_path / "home" / "groups" / "dead"
    group.mkdir(parents=True)
    env = {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}
    name = "sweargo-group-0123456789abcdef"
    server.machines.templates[f"team/{name}:default"] = "kept"
    (group / "sandbox.json").write_text(SandboxSpec(backend="e2b").model_dump_json())
    (group / "0.json").write_text(f'{{"name": "{name}"}}')  # it died before it had the answer
    (group / "owner").write_text(_dead_owner())
    assert f"snapshot {name}" in swe_argo("clean", cwd=tmp_path, env=env).stdout
    assert swe_argo("clean", "--yes", cwd=tmp_path, env=env).returncode == 0
    assert len(server.machines.templates) == 1
    assert "snapshot" not in swe_argo("clean", cwd=tmp_path, env=env).stdout


def test_dead_makers_snapshot_is_removed(server: E2BServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    group = tmp_path / "home" / "groups" / "dead"
    group.mkdir(parents=True)
    (group / "sandbox.json").write_text(SandboxSpec(backend="e2b").model_dump_json())
    (group / "owner").write_text(_dead_owner())
    before = set(server.machines.templates)
    server.machines.templates["team/sweargo-group-first:default"] = "kept"
    (group / "i.json").write_text(SnapshotRecord(name="sweargo-group-first").model_dump_json())
    backend = connect(SandboxSpec(backend="e2b"))
    box = backend.create(SandboxRequest("sb-test-next", image_by_id("mini")[INSTANCE], 60, network=False))
    with (group / "i.lock").open("ab") as lock:
        member = GroupMember(group / "i.json", lock)
        assert member.prepares
        member.has(backend, box)
        member.keep({})
    assert GroupMember(group / "i.json").snapshot in server.control.snapshots
    backend.destroy(box)
    assert list_dead_groups().remove() == {}
    settings.cache_clear()
    assert set(server.machines.templates) == before


def test_group_notices_explain_why_not() -> None:
    groups = {"group_from_snapshot": True}
    assert group_notices(SandboxSpec(backend="e2b"), 8) == []
    assert group_notices(SandboxSpec.model_validate({"backend": "e2b", **groups}), 8) == []
    assert "with one attempt" in group_notices(SandboxSpec.model_validate({"backend": "e2b", **groups}), 1)[0]
    assert "docker has no snapshots" in group_notices(SandboxSpec.model_validate({"backend": "docker", **groups}), 8)[0]


def _dead_owner() -> str:
    return f"{process_owner().partition(':')[0]}:999999999:1"
