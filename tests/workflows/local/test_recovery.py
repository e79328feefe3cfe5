"""Temporary folders of a killed runner, and hooks of a backend that fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Stage, Unit
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import RunHooks
from swe_argo.workflows.local.recovery import RETENTION_S, SafeHooks, is_worth_keeping


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


class BrokenHooks(RunHooks):
    """Hooks of which each raises ``error``."""

    error: Exception = ValueError("no answer")

    def can_create(self) -> bool:
        raise self.error

    def remove_remains(self, unit: Unit) -> None:
        raise self.error

    def finish_unit(self, unit: Unit) -> None:
        raise self.error


def test_failing_hooks_are_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    broken = BrokenHooks()
    hooks, unit = SafeHooks(broken), Unit(instance_id="i", attempt=1, begins=Stage.GRADE, repo="r", image="i")
    for _ in range(2):
        assert hooks.can_create()
        hooks.remove_remains(unit)
        hooks.finish_unit(unit)
    names = ("can_create", "remove_remains", "finish_unit")
    notes = [f"note: the backend's hook {name} failed, the run continues: ValueError: no answer" for name in names]
    assert capsys.readouterr().err.splitlines() == notes
    broken.error = ConfigError("somebody else must")
    with pytest.raises(ConfigError):
        hooks.remove_remains(unit)
