"""Which versions made a run."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from swe_argo.steps.settings import settings


def versions() -> dict[str, str]:
    """What a run was made by: this project, its grader, Python and the platform, and the commit where it is known."""
    return {
        "swe-argo": version("swe-argo"),
        "swebench": version("swebench"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "code": _code_version(),
    }


def _code_version() -> str:
    """The commit of this project where it runs from a checkout, marked when there are changes on top."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return settings().revision or "released"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"
