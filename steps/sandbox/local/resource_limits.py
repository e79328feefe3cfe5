"""Resource limits of a local sandbox: processes, memory and cores by the kernel, disk by a watch."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.host import cgroup
from swe_argo.steps.host.cgroup import Cgroup
from swe_argo.steps.sandbox.protocol import SandboxRequest

PROCESSES = 4096
"""Maximum processes and threads; test suites have hundreds."""
MEMORY_SHARE = 0.9
"""Default share of the machine's memory; the rest is for the machine itself."""
DISK_RESERVE = 1 << 30
"""Bytes that always stay free."""
DISK_LEAST = 64 << 20
"""Minimum disk limit, even if less is free."""


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of a sandbox; ``cpus`` None: none. Without a control group (``group``), ``rlimits`` limit each process."""

    processes: int
    memory_bytes: int
    disk_bytes: int
    cpus: float | None
    group: Cgroup | None

    def rlimits(self, *, isolated: bool) -> dict[str, int]:
        """Return the rlimits of every command (getrlimit(2)), name -> value.

        RLIMIT_NPROC counts the user's processes in a user namespace, so it is set only if the sandbox has its own.
        """
        limits = {"RLIMIT_FSIZE": self.disk_bytes}
        if self.group is None:
            limits["RLIMIT_DATA"] = self.memory_bytes
            if isolated:
                limits["RLIMIT_NPROC"] = self.processes
        return limits


def resource_limits(root: Path, request: SandboxRequest) -> ResourceLimits:
    """Return the limits of a sandbox in the folder ``root``, and set them on its control group."""
    factor = request.resource_factor
    free = shutil.disk_usage(root).free - DISK_RESERVE
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
    """Return the machine's memory; 1 TiB, which limits nothing, if unknown."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return 1 << 40
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def describe_limits() -> str:
    """Describe the limits of a sandbox on this machine."""
    group = cgroup.probe_cgroup()
    if group:
        return f"processes and memory limited by control groups (v{group.version}), disk by measuring"
    processes = "" if os.geteuid() else ", without a limit on their number"
    return f"no control groups available: memory limited per process{processes}; disk limited by measuring"
