"""A fork bomb, a hungry process and a full disk stay inside their sandbox: each is really tried, within bounds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ResourceError, StepError
from swe_argo.steps.host import cgroup
from swe_argo.steps.host.removal import remove
from swe_argo.steps.sandbox.local import bubblewrap, resource_limits
from swe_argo.steps.sandbox.local.resource_limits import INODE, measure
from swe_argo.steps.sandbox.local.sandbox import LocalSandbox
from tests.steps.host.test_removal import LONG, nest
from tests.steps.sandbox.lab import add_image
from tests.steps.sandbox.local.test_backend import LocalLab

needs_groups = pytest.mark.skipif(cgroup.probe_cgroup() is None, reason="no control groups available")
MOST = 60


@pytest.fixture(params=["namespaces", "translated"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, checkout: Path) -> Iterator[LocalLab]:
    isolated = request.param == "namespaces"
    if isolated and bubblewrap.probe():
        pytest.skip(str(bubblewrap.probe()))
    with LocalLab(add_image(tmp_path, checkout), isolated=isolated) as lab:
        yield lab
    assert not [box for box in lab.sandboxes if box.root.exists() or list(cgroup.find_cgroups(box.root.name))]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_limits, "PROCESSES", MOST)


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "probe_cgroup", lambda: None)


def processes(box: LocalSandbox) -> int:
    assert box.limits.group
    return int((box.limits.group.folders["pids"] / "pids.current").read_text())


@needs_groups
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("lab", "bomb"),
    [
        ("namespaces", ":(){ :|:& };:; sleep 2"),
        # bash would wait and try again
        ("translated", f"sh -c 'for i in $(seq {4 * MOST}); do sleep 60 & done'; sleep 2"),
    ],
    indirect=["lab"],
    ids=["namespaces", "translated"],
)
def test_fork_bomb_stays_inside(lab: LocalLab, bomb: str) -> None:
    box = lab.make()
    result = box.exec(bomb, timeout_s=60, merge=True)
    assert b"fork" in result.stdout, result
    assert processes(box) <= MOST
    beside = lab.make()
    assert beside.exec("echo $(echo fine)", timeout_s=60).stdout == b"fine\n", "another sandbox has its own"


@needs_groups
@pytest.mark.usefixtures("few")
def test_destroy_works_when_full(lab: LocalLab) -> None:
    box = lab.make()
    box.exec(f"sh -c 'for i in $(seq {4 * MOST}); do setsid env -i sleep 321 & done' 2>/dev/null", timeout_s=60)
    assert processes(box) > MOST / 2
    with suppress(StepError):  # there may be no room for one more
        box.exec("true", timeout_s=5)
    lab.destroy(box)
    assert box.limits.group
    assert not box.limits.group.folders["pids"].exists(), "empty, for it could be removed"


@needs_groups
def test_memory_limit_is_resource_error(lab: LocalLab) -> None:
    box = lab.make(memory_mb=128)
    assert box.machine.memory_mb == 128
    with pytest.raises(ResourceError, match=r"ran out of memory \(its limit of 128 MiB\)") as caught:
        box.exec("echo begun; python -c 'x = bytearray(400 << 20)'; echo went on", timeout_s=60, merge=True)
    assert caught.value.failure_class is FailureClass.OUT_OF_MEMORY
    assert caught.value.output.startswith(b"begun\n")
    assert isinstance(box.outside_failure(), ResourceError)


@pytest.mark.usefixtures("no_groups")
def test_rlimits_replace_cgroups(lab: LocalLab) -> None:
    box = lab.make(memory_mb=128, disk_mb=64)
    assert box.machine.memory_mb is None, "what is not bounded as a whole is not told as if it were"
    hungry = box.exec("python -c 'x = bytearray(400 << 20)'", timeout_s=60)
    assert b"MemoryError" in hungry.stderr
    large = box.exec("head -c 200M /dev/zero >large; stat -c %s large", timeout_s=60)
    assert int(large.stdout) <= 64 << 20
    assert box.outside_failure() is None


@pytest.mark.usefixtures("no_groups", "few")
def test_process_limit_without_cgroups(lab: LocalLab) -> None:
    if os.geteuid() == 0:
        pytest.skip("the kernel lets root have as many processes as it likes")
    if not lab.confines_network:
        pytest.skip("without a user namespace the person's own processes would count")
    assert b"fork: " in lab.make().exec(f"for i in $(seq {4 * MOST}); do sleep 9 & done", timeout_s=60).stderr


FILLING = {
    "large files": "for i in $(seq 200); do head -c 4M /dev/zero >f$i; sleep 0.05; done",
    "many files": "for i in $(seq 20); do seq -f $i-%g 2500 | xargs touch; sleep .1; done",
    "closed folders": "for i in $(seq 99); do mkdir d$i; head -c 4M /dev/zero >d$i/f; chmod 0 d$i; sleep .1; done",
}


@pytest.mark.parametrize(
    ("lab", "filling"),
    [("translated", "large files"), *(("namespaces", filling) for filling in FILLING)],
    indirect=["lab"],
)
def test_full_disk_stays_inside(lab: LocalLab, filling: str) -> None:
    box = lab.make(disk_mb=64)
    with pytest.raises(ResourceError, match=r"ran out of disk \(its limit of 64 MiB\)") as caught:
        box.exec(f"echo begun; {FILLING[filling]}; sleep 60", timeout_s=120, merge=True)
    assert caught.value.failure_class is FailureClass.OUT_OF_DISK
    assert caught.value.output.startswith(b"begun\n")
    assert isinstance(box.outside_failure(), ResourceError)
    with pytest.raises(ResourceError):
        box.read("/testbed/hello.txt")


def test_usage_below_limits_is_allowed(lab: LocalLab) -> None:
    box = lab.make(memory_mb=256, disk_mb=256)
    script = "head -c 40M /dev/zero >f; python -c 'x = bytearray(40 << 20); import os; os.truncate(\"f\", 200 << 20)'"
    result = box.exec(f"{script}; for i in $(seq 50); do sleep 1 & done; wait; echo fine", timeout_s=60)
    assert result.stdout == b"fine\n", result
    assert box.outside_failure() is None


def test_measure_handles_long_paths(tmp_path: Path) -> None:
    nest(tmp_path, 40, LONG)  # beyond PATH_MAX
    size, whole = measure(tmp_path)
    assert whole
    assert size >= 40 * INODE
    remove(tmp_path)


@needs_groups
def test_cgroup_holds_child_processes() -> None:
    group = cgroup.make_cgroup(f"swe-argo-test-{os.getpid()}")
    assert group is not None
    try:
        result = subprocess.run(
            group.wrap_command(["/bin/sh", "-c", 'cat /proc/self/cgroup; printf %s "$1"', "sh", "a  b:"]),
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"/swe-argo-test-{os.getpid()}" in result.stdout
        assert result.stdout.endswith("a  b:")
    finally:
        group.end()
    assert not list(cgroup.find_cgroups(f"swe-argo-test-{os.getpid()}"))


@needs_groups
def test_ended_cgroup_has_no_cache(tmp_path: Path) -> None:
    def is_cached() -> bool:
        with suppress(BlockingIOError):
            return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        return False

    if b"tmpfs" in subprocess.run(["stat", "-f", "-c", "%T", tmp_path], check=True, capture_output=True).stdout:
        pytest.skip("the temporary folder is in memory")
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(1 << 20))
    with shared.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        group = cgroup.make_cgroup(f"swe-argo-test-{os.getpid()}")
        assert group is not None
        subprocess.run(group.wrap_command(["/bin/cat", str(shared)]), check=True, capture_output=True)
        assert is_cached()
        group.end()
        assert not is_cached()
