"""Attempts that begin from one prepared sandbox: one preparation a group, and the verdicts of attempts that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.sandbox.local import bubblewrap
from tests.cluster.disturbances import recordings
from tests.steps.sandbox.ags.runs import AGSRuns
from tests.steps.sandbox.e2b.test_groups import INSTANCE, outcomes
from tests.workflows.command import swe_argo

pytestmark = [pytest.mark.long, pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))]

GROUP = 2


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[AGSRuns]:
    runs = AGSRuns(tmp_path)
    with runs.server.running():
        recordings(tmp_path / "recorded", [INSTANCE])
        yield runs


def run(runs: AGSRuns, folder: Path, run_id: str, *flags: str, attempts: int = GROUP) -> None:
    """A run of recorded actions."""
    words = ["--store", runs.store, "--run-id", run_id, *runs.backend, "-j", "4", "--counter-proof", "never"]
    words += ["--trajectories", "recorded", "-i", INSTANCE, "--attempts", str(attempts), "--agent-timeout", "600"]
    result = swe_argo("run", *words, *flags, cwd=folder, env=runs.env)
    assert result.returncode == 0, result.stdout + result.stderr


def count_start_sources(runs: AGSRuns) -> Counter[str]:
    """What sandboxes of agents were made from."""
    bodies = [body for body in runs.server.control.starts if {"Name": "role", "Value": "solve"} in body["Metadata"]]
    return Counter("snapshot" if "SnapshotId" in body else "image" for body in bodies)


@pytest.mark.slow
def test_group_is_prepared_once(runs: AGSRuns, tmp_path: Path) -> None:
    run(runs, tmp_path, "with", "--group-from-snapshot")
    assert count_start_sources(runs) == {"image": 1, "snapshot": GROUP - 1}
    [snapshot] = runs.server.control.snapshots.snapshot_ids
    assert snapshot not in runs.server.machines.templates  # removed at the end
    run(runs, tmp_path, "without", attempts=1)
    [one] = outcomes(tmp_path, "without", 1)
    assert outcomes(tmp_path, "with", GROUP) == [one] * GROUP
    assert runs.orphans == []


@pytest.mark.long
def test_group_needs_snapshots(runs: AGSRuns, tmp_path: Path) -> None:
    runs.server.control.snapshots.is_off = True
    run(runs, tmp_path, "with", "--group-from-snapshot", attempts=2)
    assert count_start_sources(runs) == {"image": 2}
    assert len(outcomes(tmp_path, "with", 2)) == 2
