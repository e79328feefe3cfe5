"""What ``plan`` tells the engine of a wish, and what of one it refuses because no pod could heed it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def plan(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As its pod would run it, but on this machine."""
    fixed = [
        "--set=run_id=r",
        f"--set=store={folder / 'store'}",
        "--default=sandbox.backend=local",
        "--default=select.k=1",
    ]
    command = [
        sys.executable,
        "-m",
        "steps.plan",
        *fixed,
        f"--out={folder / 'out'}",
        "--tell=retries",
        "--tell=fail_fast",
    ]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)


def told(folder: Path) -> tuple[str, str]:
    return (folder / "out" / "retries").read_text(), (folder / "out" / "fail_fast").read_text()


def test_retries_and_failing_fast_are_told_and_the_spec_wins_over_parameters(tmp_path: Path) -> None:
    said = ("--default=retries=4", "--default=fail_fast=false")
    done = plan(tmp_path, *said)
    assert done.returncode == 0, done.stderr
    assert told(tmp_path) == ("4", "false")
    done = plan(tmp_path, *said, "--wish=retries = 0\nfail_fast = true")
    assert done.returncode == 0, done.stderr
    assert told(tmp_path) == ("0", "true")


def test_what_no_pod_could_heed_is_refused_by_its_name(tmp_path: Path) -> None:
    unknown = ("--unknown=max_cost_usd", "--unknown=llm.config")
    for wish, name in (("max_cost_usd = 2.0", "max_cost_usd"), ('[llm]\nconfig = "llm.a"', "llm.config")):
        done = plan(tmp_path, *unknown, "--default=agent.name=gold", f"--wish={wish}")
        assert done.returncode == 64, done.stderr
        assert f"{name}: a command line heeds this, and no pod" in done.stderr
    assert not (tmp_path / "store").exists()
    assert plan(tmp_path, *unknown).returncode == 0
