"""Versions of the software that made a run."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from swe_argo.steps.settings import settings


def versions() -> dict[str, str]:
    """Return the versions behind a run: this project, its grader, Python, the platform, and the commit if known."""
    return {
        "swe-argo": version("swe-argo"),
        "swebench": version("swebench"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "code": _code_version(),
    }


def _code_version() -> str:
    """Return the commit of this project if it runs from a checkout, marked if there are uncommitted changes."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return settings().revision or "released"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
