from __future__ import annotations

from pathlib import Path

from swe_argo.steps.agents.formats.writers import open_writers
from tests.steps.agents.solved_units import ID, run_file, solved_unit


def test_forced_folder_replaces_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("of before")
    with open_writers(target, "mini", run_file(), 1, force=True) as writers:
        writers.unit(solved_unit([("bash", {"command": "ls"}, "a.py\n")], agent="mini-swe-agent"))
    assert (target / ID / f"{ID}.traj.json").is_file()
    assert list(tmp_path.iterdir()) == [target], "what was there before is gone"
