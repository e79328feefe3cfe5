"""``swe-argo submit``: how long a person waits until the run is in the cluster's hands."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TIMES = 5


def measure() -> dict[str, float]:
    """Seconds of wall of a whole command; nothing where SWE_ARGO_TEST_CLUSTER names no kubeconfig."""
    kubeconfig = os.environ.get("SWE_ARGO_TEST_CLUSTER")
    if not kubeconfig:
        sys.stderr.write("pipeline_submit: not measured, SWE_ARGO_TEST_CLUSTER names no cluster\n")
        return {}
    from bench.pipeline.installed_pipeline import prepared

    with prepared(Path(kubeconfig), 1) as pipeline:
        command = [
            sys.executable,
            "-m",
            "swe_argo.workflows.cli.main",
            "submit",
            "--namespace",
            pipeline.namespace,
            "--k",
            "1",
        ]
        took = []
        for number in range(TIMES):
            run = f"submitted-{number}"
            began = time.monotonic()
            subprocess.run([*command, "--run-id", run], env=pipeline.cluster.environment, check=True)
            took.append(time.monotonic() - began)
            pipeline.kubectl("delete", "workflow", f"-lswe-argo/run={run}", "--wait=false")
            time.sleep(3)
    return {"pipeline_submit_p50_s": statistics.median(took), "pipeline_submit_most_s": max(took)}
