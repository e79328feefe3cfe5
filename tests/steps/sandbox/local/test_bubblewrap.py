"""Isolation of a sandbox in namespaces from this host, and the probe for namespaces."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps import TEMPLATES
from swe_argo.steps.sandbox.local import bubblewrap, seccomp
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from tests.paths import ROOT

needs_bubblewrap = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    (folder / "img" / "testbed").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def sandbox(images: Path) -> Iterator[Sandbox]:
    backend = LocalBackend(images, isolated=True)
    box = backend.create(SandboxRequest("n", "img", 1000, network=False))
    yield box
    backend.destroy(box)


def prints(box: Sandbox, command: str) -> str:
    return box.exec(command, timeout_s=60, merge=True).stdout.decode(errors="replace")


@needs_bubblewrap
def test_sandbox_hides_the_hosts_files(sandbox: Sandbox, images: Path) -> None:
    hidden = [images, Path.home() / ".ssh", Path("/run/docker.sock"), Path("/var/run/docker.sock"), Path(__file__)]
    for path in hidden:
        assert prints(sandbox, f"test -e '{path}' || echo hidden") == "hidden\n", path
    prefixes = (Path(sys.prefix), Path(sys.base_prefix))
    for folder in ("/home", "/opt", "/srv", "/tmp"):
        if not any(prefix.is_relative_to(folder) for prefix in prefixes):
            assert prints(sandbox, f"ls -A {folder}") == "", folder


@needs_bubblewrap
def test_sandbox_hides_this_project(sandbox: Sandbox) -> None:
    folders = " ".join(f"'{TEMPLATES.parent / name}'" for name in ("steps", "workflows", "templates"))
    assert prints(sandbox, f"ls -A {folders} 2>/dev/null | grep -v -e : -e '^$'") == ""
    assert "No module named 'swe_argo'" in prints(sandbox, "python -c 'import swe_argo.steps.datasets'")


@needs_bubblewrap
def test_system_folders_are_read_only(sandbox: Sandbox) -> None:
    for path in ("/usr/x", "/etc/x", f"{sys.prefix}/x", "/proc/sys/kernel/x"):
        assert "Read-only" in prints(sandbox, f"touch '{path}'") or path.startswith("/proc")
    assert prints(sandbox, "cd / && touch /x /root/x /var/tmp/x /run/x /opt/x && echo written") == "written\n"


@needs_bubblewrap
@pytest.mark.parametrize("setting", ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sysrq-trigger"])
def test_kernel_settings_are_protected(sandbox: Sandbox, setting: str) -> None:
    # Opened for appending, nothing written: where this fails, it does no harm.
    assert prints(sandbox, f": >>{setting} && echo opened").endswith(
        ("denied\n", "Read-only file system\n", "No such file or directory\n")
    )


@needs_bubblewrap
def test_remount_is_denied(sandbox: Sandbox) -> None:
    assert prints(sandbox, "mount -o remount,rw,bind /usr && echo remounted").count("remounted") == 0
    assert prints(sandbox, "unshare -Ur mount -o remount,rw,bind /usr && echo remounted").count("remounted") == 0


@needs_bubblewrap
def test_etc_has_only_needed_files(sandbox: Sandbox) -> None:
    hidden = "shadow* gshadow* sudoers* ssh machine-id gitconfig pip.conf docker ssl/private krb5.keytab resolv.conf"
    assert prints(sandbox, f"cd /etc && ls -d {hidden} 2>/dev/null") == ""
    assert prints(sandbox, "cat /etc/hosts /etc/hostname; hostname") == f"{bubblewrap.HOSTS}localhost\nlocalhost\n"
    assert prints(sandbox, "getent passwd root && getent services http && echo known").endswith("known\n")
    assert prints(sandbox, "python -c 'import time; print(time.tzname)'") == f"{time.tzname}\n"


@needs_bubblewrap
@pytest.mark.skipif(platform.machine() != "x86_64", reason="its numbers are those of x86_64")
def test_sandbox_denies_both_call_kinds(sandbox: Sandbox) -> None:
    native = "print([(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()) for number in {}])"
    # mov eax, NUMBER; int 0x80; ret
    code = "mmap.mmap(-1, 4096, prot=7)"
    foreign = f"""import mmap
for number in {{}}:
    code = {code}; code.write(b'\\xb8' + number.to_bytes(4, 'little') + b'\\xcd\\x80\\xc3')
    print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())"""

    def call(script: str, numbers: tuple[int, ...]) -> str:
        script = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n" + script.format(numbers)
        return prints(sandbox, f'python -c "{script}"')

    assert "PermissionError" in prints(sandbox, "python -c 'import socket; socket.socket(socket.AF_VSOCK)'")
    assert call(native, seccomp.NUMBERS[0xC000003E]) == f"{[(-1, errno.EPERM)] * 7}\n"
    if call(foreign, (20,)).strip().isdigit():  # getpid: this kernel runs programs of i386
        assert call(foreign, seccomp.NUMBERS[0x40000003]).split() == [str(-errno.EPERM)] * 7


@needs_bubblewrap
def test_probe_names_unsupported_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in (bubblewrap._probe_namespace.__wrapped__() or "")


@needs_bubblewrap
def test_first_process_is_protected(sandbox: Sandbox) -> None:
    prints(sandbox, "kill -9 1; kill -STOP 1; kill -INT 1; kill -TERM 1; kill -CHLD 1; kill -9 -1")
    assert "denied" in prints(sandbox, "cat /proc/1/environ")


PROBE = ["-c", "from swe_argo.steps.sandbox.local.bubblewrap import probe; print(probe())"]


def probe_output(command: list[str], cwd: Path = ROOT, **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([*command, *PROBE], capture_output=True, text=True, cwd=cwd, env=env, check=True).stdout


@needs_bubblewrap
def test_probe_explains_denied_namespace() -> None:
    """A probe inside a namespace that forbids more of them."""
    if not bubblewrap._has_option("--disable-userns"):
        pytest.skip("this bubblewrap has no --disable-userns")
    outer = ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user", "--uid", "1000"]
    output = probe_output([*outer, "--disable-userns", sys.executable])
    assert output.startswith("bubblewrap is installed but cannot create a namespace ("), output
    assert "user namespaces" in output or "userns" in output


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_probe_names_the_missing_package(tmp_path: Path) -> None:
    missing = "bubblewrap is not installed: install the package bubblewrap (it brings the command bwrap)\n"
    assert probe_output([sys.executable], PATH=str(tmp_path)) == missing


@needs_bubblewrap
def test_probe_accepts_relative_python(tmp_path: Path) -> None:
    assert probe_output([os.path.relpath(sys.executable, tmp_path)], tmp_path) == "None\n"
