"""The report of a whole SWE-bench: 2,294 units with logs of the size real ones have (45 kB on average)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from steps.store import open_store
from tests.steps.reports.synthetic import Synthetic

UNITS = 2294
LOG_LINES = 500


def measure() -> dict[str, float]:
    """Wall and CPU seconds, GiB at the peak and MB of HTML of ``python -m steps.report`` as a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder, create=True)
        Synthetic(instances=UNITS, log_lines=LOG_LINES).write(store)
        command = [sys.executable, "-m", "steps.report", "--store", folder, "--run", "synthetic"]
        began = time.monotonic()
        child = subprocess.Popen(command)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
        html = Path(store.locate("runs/synthetic/report/report.html")).stat().st_size
    return {
        "report_2294_units_s": seconds,
        "report_2294_units_cpu_s": used.ru_utime + used.ru_stime,
        "report_2294_units_gib": used.ru_maxrss / 2**20,
        "report_html_mb": html / 1e6,
    }
