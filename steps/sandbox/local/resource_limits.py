"""Resource limits of a local sandbox: the kernel limits processes, memory and cores, a watch the disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.host import cgroup
from swe_argo.steps.host.cgroup import Cgroup
from swe_argo.steps.sandbox.protocol import SandboxRequest

PROCESSES = 4096
"""Threads count, too. Test suites have hundreds."""
MEMORY_SHARE = 0.9
"""Default share of the machine's memory; the rest keeps the machine itself running."""
DISK_LEFT = 1 << 30
"""Bytes that stay free, whatever the limit of a sandbox."""
DISK_LEAST = 64 << 20


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of a sandbox. ``group`` is None if no control group can be made: then ``rlimits`` bound each process."""

    processes: int
    memory_bytes: int
    disk_bytes: int
    cpus: float | None
    group: Cgroup | None

    def rlimits(self, *, isolated: bool) -> dict[str, int]:
        """Return the rlimits of every command (getrlimit(2)). A user's processes are counted per user namespace."""
        limits = {"RLIMIT_FSIZE": self.disk_bytes}
        if self.group is None:
            limits["RLIMIT_DATA"] = self.memory_bytes
            if isolated:
                limits["RLIMIT_NPROC"] = self.processes
        return limits


def bounds(root: Path, request: SandboxRequest) -> ResourceLimits:
    """Return the limits of a sandbox in the folder ``root``, and set them on its control group of the same name."""
    factor = request.resource_factor
    free = shutil.disk_usage(root).free - DISK_LEFT
    memory = int(MEMORY_SHARE * _machine_bytes())
    limits = ResourceLimits(
        processes=PROCESSES,
        memory_bytes=int(request.memory_mb * factor) << 20 if request.memory_mb else memory,
        disk_bytes=max(DISK_LEAST, min(free, int(request.disk_mb * factor) << 20 if request.disk_mb else free)),
        cpus=request.cpus and request.cpus * factor,
        group=cgroup.make_cgroup(root.name) if cgroup.probe_cgroup() else None,
    )
    if limits.group:
        limits.group.limit(limits.processes, limits.memory_bytes, limits.cpus)
    return limits


def _machine_bytes() -> int:
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return 1 << 40
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def promise() -> str:
    """Describe the limits of a sandbox here in a few words."""
    group = cgroup.probe_cgroup()
    if group:
        return f"processes and memory bounded by control groups (v{group.version}), disk by watching"
    processes = "" if os.geteuid() else " and none on the number of processes"
    return f"no control group can be made here: each process is bounded by itself{processes}, disk by watching"
