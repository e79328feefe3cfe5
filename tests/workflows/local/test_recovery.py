"""What a runner that was killed left in its temporary folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

from swe_argo.workflows.local.recovery import KEPT_S, is_worth_keeping


def test_what_a_solve_had_done_is_kept_for_a_week(tmp_path: Path) -> None:
    assert not is_worth_keeping(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trajectory.json").touch()
    assert is_worth_keeping(tmp_path)
    then = time.time() - KEPT_S - 1
    os.utime(tmp_path, (then, then))
    assert not is_worth_keeping(tmp_path)


def test_a_folder_that_another_run_removed_meanwhile_is_nothing(tmp_path: Path) -> None:
    assert not is_worth_keeping(tmp_path / "gone")
