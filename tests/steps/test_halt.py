"""What a Workflow of a training made ends with it, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tests.steps.argo.api_server import serving


def workflow(name: str, kind: str, parent: str, phase: str) -> dict[str, Any]:
    completed = {"workflows.argoproj.io/completed": "true"} if phase == "Succeeded" else {}
    labels = {"swe-argo/kind": kind, "swe-argo/parent": parent, "workflows.argoproj.io/phase": phase, **completed}
    meta = {"name": name, "labels": labels}
    return {"kind": "Workflow", "metadata": meta, "spec": {}, "status": {"phase": phase}}


def halt(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, as Argo starts it."""
    command = [sys.executable, "-m", "swe_argo.steps.halt", "--workflow=one-abc", *words]
    env = {"PATH": "/usr/bin:/bin", "KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_halt_stops_own_workflows(tmp_path: Path) -> None:
    with serving() as api:
        api.add(
            workflow("one-abc-000001", "round", "one-abc", "Succeeded"),
            workflow("one-abc-000002", "round", "one-abc", "Running"),
            workflow("one-abc-000002-r", "evaluate", "one-abc-000002", "Running"),
            workflow("two-abc-000001", "round", "two-abc", "Running"),
        )
        result = halt(api.kubeconfig(tmp_path))
        assert result.returncode == 0, result.stderr
        assert api.changed("PATCH") == ["one-abc-000002"]
        assert api.objects["workflows", "one-abc-000002"]["spec"] == {"shutdown": "Stop"}
        assert "stopped: one-abc-000002\n" in result.stderr


def test_halt_reports_endless_workflow(tmp_path: Path) -> None:
    with serving(controller=False) as api:
        api.add(workflow("one-abc-000002", "round", "one-abc", "Running"))
        result = halt(api.kubeconfig(tmp_path), "--within=1")
        assert result.returncode == 75, result.stderr
        assert "1 of the Workflows that one-abc made have not ended" in result.stderr
