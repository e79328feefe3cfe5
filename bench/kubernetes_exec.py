"""What a command in a pod costs over its own run time, beside a bare exec of the same client and ``kubectl exec``."""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.kubernetes.exec import Exec
from tests.cluster.images import load_sandbox_image
from tests.cluster.lab import KubernetesLab, laboratory
from tests.cluster.real_cluster import Cluster

ROUNDS = 100
AT_ONCE = 40
MOST_TO_BARE = 1.3
"""What a median command may cost at most, in bare execs; the 95th percentile is told in these."""
OUTPUT = b"0123456789abcde\n" * 3_125_000


def measure() -> dict[str, float]:
    """Ratios of short commands to bare execs and kubectl, seconds for 50 MB of output, errors of 40 commands at a time.

    Needs a cluster (SWE_ARGO_TEST_CLUSTER); nothing without one.
    """
    kubeconfig = os.environ.get("SWE_ARGO_TEST_CLUSTER")
    if not kubeconfig:
        sys.stderr.write("kubernetes_exec: no cluster (SWE_ARGO_TEST_CLUSTER names a kubeconfig): not measured\n")
        return {}
    cluster = Cluster(Path(kubeconfig).resolve())
    with tempfile.TemporaryDirectory() as folder:
        image = load_sandbox_image(cluster, Path(folder))
        with laboratory(cluster, image, Path(folder)) as lab:
            return _short(lab) | {"output_50mb_s": _output(lab), "forty_at_once_errors": _at_once(lab)}


def _short(lab: KubernetesLab) -> dict[str, float]:
    box = lab.make(deadline_s=600)
    bare = Exec(lab.reached, box.transport.name)
    kubectl = ("exec", box.transport.name, "-c", "sandbox", "--", "/bin/sh", "-c", "true")
    times: dict[str, list[float]] = {"bare": [], "job": [], "kubectl": []}
    for _ in range(ROUNDS):  # in turn, so that what else the machine does meets all alike
        times["bare"].append(_seconds(lambda: bare.once("true")))
        times["job"].append(_seconds(lambda: box.exec("true", timeout_s=60)))
        times["kubectl"].append(_seconds(lambda: lab.kubectl(*kubectl)))
    p50 = {name: statistics.median(seconds) for name, seconds in times.items()}
    p95 = statistics.quantiles(times["job"], n=20)[-1]
    return {
        "exec_bare_p50_ms": p50["bare"] * 1e3,
        "exec_ratio_to_bare_p50": p50["job"] / p50["bare"],
        "exec_ratio_to_kubectl_p50": p50["job"] / p50["kubectl"],
        "exec_p95_ratio": p95 / (MOST_TO_BARE * p50["bare"]),
    }


def _output(lab: KubernetesLab) -> float:
    box = lab.make(deadline_s=600)
    began = time.perf_counter()
    result = box.exec(f"yes 0123456789abcde | head -c {len(OUTPUT)}", timeout_s=60)
    seconds = time.perf_counter() - began
    if hashlib.sha256(result.stdout).digest() != hashlib.sha256(OUTPUT).digest():
        raise ValueError(f"50 MB arrived as {len(result.stdout)} other bytes")
    return seconds


def _at_once(lab: KubernetesLab) -> float:
    """Commands of one process, so many at a time: how many went wrong."""
    box = lab.make(deadline_s=600)

    def error(number: int) -> StepError | None:
        try:
            result = box.exec(f"echo {number}; exit {number % 5}", timeout_s=60)
        except StepError as raised:
            return raised
        if (result.exit_code, result.stdout) == (number % 5, f"{number}\n".encode()):
            return None
        return StepError(FailureClass.EXEC, f"command {number} gave {result}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        errors = [failure for failure in pool.map(error, range(5 * AT_ONCE)) if failure]
    for failure in errors:
        sys.stderr.write(f"kubernetes_exec: {failure!r}\n")
    return float(len(errors))


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
