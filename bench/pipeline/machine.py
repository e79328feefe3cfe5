"""CPU of this whole machine, which is the whole cluster, from /proc."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
TICK = os.sysconf("SC_CLK_TCK")
DAEMONS = ("workflow-contro", "kube-apiserver", "etcd", "kubelet", "containerd", "kube-controller", "kube-scheduler")
"""As the kernel cuts their names."""


def busy_s() -> float:
    """CPU seconds since boot in which any core did anything."""
    user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    return (user + nice + system + irq + soft + steal) / TICK


def own_s() -> float:
    """CPU seconds of this program and of what it started and saw end: who looks is no part of what is seen."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def daemons_s() -> dict[str, float]:
    """CPU seconds of the cluster's daemons so far, by name; Python is the S3 server and this program."""
    seconds: dict[str, float] = defaultdict(float)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = path.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        if name.startswith(DAEMONS):
            seconds[name] += sum(int(ticks) for ticks in fields.split()[11:13]) / TICK
    return dict(seconds)


@contextlib.contextmanager
def pods_s() -> Iterator[dict[str, float]]:
    """uid of a pod -> its CPU seconds, filled while the block lasts; empty where kubelet keeps no cgroups here."""
    seconds: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):  # a pod's cgroup goes soon after its last container
            seconds.update(_of_cgroups())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()


def _of_cgroups() -> Iterator[tuple[str, float]]:
    for folder in (*CGROUPS.glob("cpuacct/kubepods/**/pod*"), *CGROUPS.glob("kubepods*/**/*pod*")):
        with contextlib.suppress(OSError):
            uid = folder.name.removesuffix(".slice").rpartition("pod")[2].replace("_", "-")
            if (usage := folder / "cpuacct.usage").exists():
                yield uid, int(usage.read_text()) / 1e9
            elif (usage := folder / "cpu.stat").exists():
                yield uid, int(usage.read_text().split()[1]) / 1e6


def idle_rate(seconds: float) -> float:
    """Cores that the machine uses while nothing runs on the cluster."""
    before, began = busy_s(), time.monotonic()
    time.sleep(seconds)
    return (busy_s() - before) / (time.monotonic() - began)
