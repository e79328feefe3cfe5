"""Virtual environments outside of the checkout, for what tests need and ``.venv`` is not to hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


class NotInstalledError(Exception):
    """Why something cannot be installed on this machine, in one line."""


def make_environment(folder: Path, requirements: Path, *, what: str, timeout_s: float) -> Path:
    """Its python: a new environment in ``folder``, which has the packages of a file and none that these ask for.

    What pip says is seen while it works, on stderr: stdout is left to the caller. ``timeout_s``: of either half. Raises
    NotInstalledError, which names ``what``.
    """
    python = folder / "bin" / "python"
    _call([sys.executable, "-m", "venv", "--clear", str(folder)], what, timeout_s)
    _call([str(python), "-m", "pip", "install", "--no-deps", "-r", str(requirements)], what, timeout_s)
    return python


def _call(words: list[str], what: str, timeout_s: float) -> None:
    try:
        done = subprocess.run(
            words, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"{what} cannot be installed: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["pip says nothing"]
        raise NotInstalledError(f"{what} cannot be installed: {lines[-1]}")
