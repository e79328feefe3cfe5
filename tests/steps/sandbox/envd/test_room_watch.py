from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.sandbox.envd.refusals import Refusals
from swe_argo.steps.sandbox.envd.room_watch import RoomWatch


def test_watch_reports_a_long_wait_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusals = Refusals(tmp_path / "home" / "refused", 60.0)
    watch = RoomWatch(refusals, "E2B", patience_s=0.0, again_s=3600.0)
    watch.look()
    refusals.refuse(1.0, "429: the maximum number of concurrent\nE2B sandboxes (20)")
    watch.look()
    watch.look()
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert output.startswith(
        "note: E2B has had no room for another sandbox for 0 s; waiting: 429: the maximum number of conc"
    )
    refusals.accept()
    watch.look()
    refusals.refuse(1.0, "full")
    watch.look()
    assert "full" in capsys.readouterr().err


def test_refusal_expires_unless_repeated(tmp_path: Path) -> None:
    now = [1000.0]
    refusals = Refusals(tmp_path / "refused", 60.0, clock=lambda: now[0])
    refusals.refuse(0.0, "full")
    now[0] += 50
    refusals.refuse(0.0, "full")
    now[0] += 50
    latest = refusals.latest()
    assert latest is not None
    assert latest.since == 1000
    now[0] += 20
    assert refusals.latest() is None
