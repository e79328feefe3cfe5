"""Grading a mini instance for real, in a folder of this machine, with the official reader of its log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from swe_argo.steps.datasets.mini import materialise
from swe_argo.steps.grading import official
from swe_argo.steps.grading.official import Graded

GIT_QUIET = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


def git(folder: Path, *command: str) -> str:
    """What a git command prints in ``folder``, free of this machine's settings."""
    run = subprocess.run(
        ["git", *command], cwd=folder, env={**os.environ, **GIT_QUIET}, capture_output=True, text=True, check=True
    )
    return run.stdout


def grade(row: dict[str, Any], patch: str, scratch: Path) -> Graded:
    """Make the repository in ``scratch``, apply ``patch`` unless it is empty, run the row's script, read its log."""
    materialise(row["instance_id"], scratch)
    testbed = scratch / "testbed"
    if patch:
        subprocess.run(["git", "apply", "--verbose", "-"], cwd=testbed, input=patch.encode(), check=True)
    spec = official.make_test_spec(row)
    log = scratch / "test_output.txt"
    log.write_text(_run(spec.eval_script.replace("/testbed", str(testbed)), scratch), encoding="utf-8")
    return official.grade(spec, log, {"instance_id": row["instance_id"], "model_patch": patch})


def _run(script: str, home: Path) -> str:
    """The script's output as one stream; ``python`` is ours, and ``git config --global`` writes into ``home``.

    What is temporary lies there too: pytest, where it ends, removes what earlier runs of anybody left beside its own.
    """
    (home / "eval.sh").write_text(script, encoding="utf-8")
    temporary = home / "tmp"
    temporary.mkdir()
    environment = {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    run = subprocess.run(
        ["/bin/bash", str(home / "eval.sh")],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return run.stdout.decode(errors="replace")
