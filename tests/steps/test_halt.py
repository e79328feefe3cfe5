"""What a Workflow of a training made ends with it, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tests.steps.argo.api_server import serving


def workflow(name: str, kind: str, parent: str, phase: str) -> dict[str, Any]:
    done = {"workflows.argoproj.io/completed": "true"} if phase == "Succeeded" else {}
    labels = {"swe-argo/kind": kind, "swe-argo/parent": parent, "workflows.argoproj.io/phase": phase, **done}
    meta = {"name": name, "labels": labels}
    return {"kind": "Workflow", "metadata": meta, "spec": {}, "status": {"phase": phase}}


def halt(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, as Argo starts it."""
    command = [sys.executable, "-m", "swe_argo.steps.halt", "--workflow=one-abc", *words]
    env = {"PATH": "/usr/bin:/bin", "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_what_it_made_and_still_runs_is_stopped(tmp_path: Path) -> None:
    with serving() as api:
        api.add(
            workflow("one-abc-000001", "round", "one-abc", "Succeeded"),
            workflow("one-abc-000002", "round", "one-abc", "Running"),
            workflow("one-abc-000002-r", "evaluate", "one-abc-000002", "Running"),
            workflow("two-abc-000001", "round", "two-abc", "Running"),
        )
        done = halt(api.kubeconfig(tmp_path))
        assert done.returncode == 0, done.stderr
        assert api.changed("PATCH") == ["one-abc-000002"]
        assert api.objects["workflows", "one-abc-000002"]["spec"] == {"shutdown": "Stop"}
        assert "stopped: one-abc-000002\n" in done.stderr


def test_one_that_does_not_end_is_told(tmp_path: Path) -> None:
    with serving(controller=False) as api:
        api.add(workflow("one-abc-000002", "round", "one-abc", "Running"))
        done = halt(api.kubeconfig(tmp_path), "--within=1")
        assert done.returncode == 75, done.stderr
        assert "1 of the Workflows that one-abc made have not ended" in done.stderr
