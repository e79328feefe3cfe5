"""What it takes to render the pipeline's YAML, the start of Python and of Hera in it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from tests.paths import ROOT

RUNS = 5


def measure() -> dict[str, float]:
    """Median wall seconds of a process that renders all, and of one that imports Hera and nothing else."""
    return {
        "render_all_s": _wall_s("-c", "from swe_argo.workflows.templates.render import render; render()"),
        "import_hera_s": _wall_s("-c", "import hera.workflows"),
    }


def _wall_s(*words: str) -> float:
    figures = []
    for _ in range(RUNS):
        began = time.monotonic()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        figures.append(time.monotonic() - began)
    return statistics.median(figures)
