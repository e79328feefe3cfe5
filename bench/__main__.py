"""``make bench``: what the project costs, beside a peer where one has the same job. Writes bench-results.json.

What needs a cluster is measured where SWE_ARGO_TEST_CLUSTER names the kubeconfig of one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from tests.paths import ROOT

RESULTS = ROOT / "bench-results.json"

# figure -> the most it may be
LIMITS = {
    "step_start_cpu_s": 0.4,
    "grading_ratio_to_swebench": 3.5,  # two milliseconds a log, mostly for the syntax trees of its patch
    "plan_500_verified_s": 3.0,
    "report_2294_units_s": 10.0,
    "report_2294_units_gib": 1.0,
    "report_html_mb": 5.0,
    "report_500_trajectories_s": 20.0,
    "report_500_trajectories_gib": 1.0,
    "view_200_runs_s": 1.0,
    "view_9176_units_s": 1.0,
    "view_9176_growing_units_s": 1.0,
    "view_table_ms": 100.0,
    "view_gib": 1.0,
    "runner_cpu_per_unit_s": 0.1,
    "turn_cpu_ms": 10.0,
    "trajectory_100_turns_mb": 3.0,
    "model_calls_bare_to_run": 1.111,  # nine tenths of its calls a second
    "run_64_units_gib": 4.0,
    "proxy_call_cpu_ms": 3.0,
    "proxy_calls_lost_in_1000_swaps": 0.0,
    "gate_call_local_p50_ms": 20.0,
    "gate_call_docker_p50_ms": 20.0,
    "gate_call_kubernetes_p50_ms": 100.0,
    "gate_mib": 20.0,
    "sandbox_first_command_p50_s": 2.0,
    "sandbox_20_at_once_s": 6.0,
    "sandbox_errors": 0.0,
}


NAMES = (
    *("start", "plan", "grading", "report", "view", "runner", "turns", "model_calls", "proxy", "gateway_calls"),
    *("kubernetes_sandbox", "pipeline_scale"),
)


def machine() -> dict[str, object]:
    """The machine, as a reader of the figures needs to know it."""
    model = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure everything, print a line a figure, write the file; exit 1 when a figure is over its limit."""
    names = [word.replace("-", "_") for word in sys.argv[1:]]
    for unknown in set(names) - set(NAMES):
        sys.stderr.write(f"nothing is measured by the name {unknown}; there are {', '.join(NAMES)}\n")
        sys.exit(64)
    figures: dict[str, float] = {}
    for name in names or NAMES:
        figures |= import_module(f"bench.{name}").measure()
    over = []
    for name, value in figures.items():
        limit = LIMITS.get(name)
        if limit is not None and value > limit:
            over.append(name)
        sys.stdout.write(f"{name:<36} {value:>10.4g}" + (f"   at most {limit:g}" if limit is not None else "") + "\n")
    # Some figures measured again take nothing from the others.
    earlier = json.loads(RESULTS.read_text())["figures"] if names and RESULTS.exists() else {}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    results = {"at": at, "machine": machine(), "figures": earlier | figures}
    RESULTS.write_text(json.dumps(results | {"limits": LIMITS}, indent=1) + "\n")
    sys.exit(f"over the limit: {', '.join(over)}" if over else 0)


main()
