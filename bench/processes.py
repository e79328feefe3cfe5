"""CPU of child processes, measured by the operating system."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence


def cpu_s(command: Sequence[str], runs: int = 7) -> float:
    """Median user + system seconds of a Python program with these arguments, its children included; it must exit 0."""
    figures = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONUTF8": "1"}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(figures)
