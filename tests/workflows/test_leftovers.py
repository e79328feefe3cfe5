"""Folders that a killed runner left never end the next run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.host.removal import remove
from tests.steps.host.test_removal import immutable, nest
from tests.workflows.command import QUICK, ids, swe_argo

pytestmark = pytest.mark.long

MAKE = "from swe_argo.steps.host.folders import private_folder; print(private_folder())"


@pytest.fixture
def orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a sandbox whose owner has ended, 1,300 folders deep."""
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    result = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True)
    folder = Path(result.stdout.strip())
    try:
        nest(folder, 1_300, "d")
        yield folder
    finally:
        remove(folder)  # what tidies up after the tests recurses


def test_run_removes_orphaned_folder(orphan: Path, tmp_path: Path) -> None:
    result = swe_argo("run", "--store", str(tmp_path / "store"), *ids(QUICK[0]))
    assert result.returncode == 0, result.stdout + result.stderr
    assert not orphan.exists()
    assert "could not be removed" not in result.stdout


def test_unremovable_folder_is_reported(orphan: Path, tmp_path: Path) -> None:
    with immutable(orphan / "kept"):
        cleaned = swe_argo("clean", "--yes")
        result = swe_argo("run", "--store", str(tmp_path / "store"), *ids(QUICK[0]))
    message = f"{orphan} could not be removed: 1 left in it, 'kept': Operation not permitted"
    assert message in cleaned.stdout
    assert "0 removed" in cleaned.stdout
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(f"note: {orphan} of an earlier run could not be removed: 1 left in it, 'kept'") == 1
    assert "1 removed" in swe_argo("clean", "--yes").stdout
