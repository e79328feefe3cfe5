"""A cluster that comes and goes leaves the machine as it was."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.real_cluster import COMMAND, Cluster

pytestmark = pytest.mark.cluster

SYSCTLS = """
net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables net/bridge/bridge-nf-call-ip6tables
vm/overcommit_memory kernel/panic kernel/panic_on_oops
"""
MADE = ["/var/lib/kubelet", "/var/log/containers", "/var/lib/cni", "/run/containerd", "/run/nri"]
DOCKER_MAKES = {"folders", "sysctls", "tables"}
"""What a Docker engine that ran on this machine leaves, too."""


@pytest.fixture
def state() -> Iterator[Path]:
    """The state folder of a cluster that is down, and is down again after the test."""
    if not os.environ.get("SWE_ARGO_TEST_LIFE"):
        pytest.skip("brings a cluster up and takes it down: set SWE_ARGO_TEST_LIFE=1")
    if reason := cluster("why-not").stdout:
        pytest.skip(reason.strip())
    if cluster("status").returncode == 0:
        pytest.skip("a cluster is up, and others may be using it")
    default = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "swe-argo-cluster"
    yield Path(os.environ.get("SWE_ARGO_CLUSTER", default))
    cluster("down")


def cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, check=False)


def traces(state: Path) -> dict[str, list[str]]:
    """What on this machine is, or would be, a cluster's."""

    def lines(pattern: str, *command: str) -> list[str]:
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return [line for line in output.splitlines() if re.search(pattern, line)]

    return {
        "processes": lines(re.escape(str(state)), "ps", "-eo", "args"),
        "mounts": lines(re.escape(str(state)), "cat", "/proc/mounts"),
        "links": lines("kc0", "ip", "-brief", "link"),
        "routes": lines(r"10\.(244|96)\.", "ip", "route"),
        "rules": lines("KC-|KUBE-|CNI-", "iptables-save"),
        "rules of IPv6": lines("KC-|KUBE-|CNI-", "ip6tables-save"),
        "tables": lines("", "nft", "list", "tables"),
        "cgroups": lines("kubepods", "find", "/sys/fs/cgroup", "-type", "d"),
        "listeners": lines(r":(6443|10250|12379|9000)\b", "ss", "-lntH"),
        "sysctls": [Path("/proc/sys", name).read_text() for name in SYSCTLS.split()],
        "folders": [name for name in MADE if Path(name).exists()],
    }


def wait_for_traces(state: Path, before: dict[str, list[str]]) -> list[str]:
    """What a cluster that is up has still not changed after a minute: some of it comes after the node is Ready.

    Left out is ``DOCKER_MAKES``: a machine may have had it before.
    """
    until = time.monotonic() + 60
    while True:
        during = traces(state)
        missing = [category for category in during.keys() - DOCKER_MAKES if during[category] == before[category]]
        if not missing or time.monotonic() > until:
            return missing
        time.sleep(1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_up_and_down_leave_no_traces(state: Path) -> None:
    assert cluster("build").returncode == 0
    before = traces(state)
    result = cluster("up")
    assert result.returncode == 0, result.stderr
    assert re.search(r"node Ready after \d+s", result.stderr)
    assert wait_for_traces(state, before) == []
    one = Cluster(state / "admin.conf")
    one.kubectl("run", "one", "--image=localhost/coredns:1", "--restart=Never", "--image-pull-policy=Never")
    one.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=180s")
    result = cluster("down")
    assert result.returncode == 0, result.stderr
    assert traces(state) == before
    assert cluster("down").returncode == 0
    assert (state / "bin" / "kubelet").is_file()
