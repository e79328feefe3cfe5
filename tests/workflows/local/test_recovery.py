"""Temporary folders of a killed runner."""

from __future__ import annotations

import os
import time
from pathlib import Path

from swe_argo.workflows.local.recovery import RETENTION_S, is_worth_keeping


def test_recovered_solve_lasts_a_week(tmp_path: Path) -> None:
    assert not is_worth_keeping(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trajectory.json").touch()
    assert is_worth_keeping(tmp_path)
    then = time.time() - RETENTION_S - 1
    os.utime(tmp_path, (then, then))
    assert not is_worth_keeping(tmp_path)


def test_missing_folder_is_not_kept(tmp_path: Path) -> None:
    assert not is_worth_keeping(tmp_path / "gone")
