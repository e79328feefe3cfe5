"""``images/build`` as a process, with no setting of this process in its environment."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.paths import ROOT

OPTIONS = {"BASE", "MINI_BASE", "BUILDER", "BUILD_NETWORK", "PYTHON"}


def images_build(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Its exit code and what it said; output and errors are one text."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("IMAGE_") and name not in OPTIONS}
    return subprocess.run(
        [str(ROOT / "images" / "build"), *words],
        env=base | {"PYTHON": sys.executable} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        check=False,
    )
