"""A real Docker engine for tests: the running one, else a dockerd of our own in a temporary folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHARED = Path(tempfile.gettempdir()) / f"swe-argo-docker-{os.getuid()}"
START_TIMEOUT_S = 120
DEAD_S = 30
"""An engine that has no process by then has ended: it cannot run here."""
STOP_TIMEOUT_S = 120
CONTAINERD_PID = "exec/containerd/containerd.pid"


class NoEngineError(Exception):
    """There is no Docker engine for the tests; the message says why."""


@dataclass(frozen=True)
class Engine:
    """A dockerd whose data, socket and pid lie in ``folder``. Killed and started again, it has its images still."""

    folder: Path
    options: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.folder}/docker.sock"

    def start(self) -> None:
        """Start it and wait until it answers. Raises NoEngineError with the end of its log."""
        dockerd = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if dockerd is None:
            raise NoEngineError("dockerd is not installed (Debian: docker.io)")
        if os.getuid() != 0:
            raise NoEngineError("no engine answers, and only root can start one")
        self.folder.mkdir(parents=True, exist_ok=True)
        # Files of a killed engine: dockerd would take a zombie for a live containerd.
        for pid_file in ("pid", CONTAINERD_PID):
            (self.folder / pid_file).unlink(missing_ok=True)
        options = ["--data-root", "data", "--exec-root", "exec", "--pidfile", "pid"]
        paths = [str(self.folder / word) if not word.startswith("-") else word for word in options]
        # No packet filter rules, no forwarding: tests leave the machine as it was, and none of them needs the internet.
        quiet = ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--shutdown-timeout", "2"]
        command = [dockerd, *paths, "-H", self.host, *quiet, *self.options]
        command.append(f"--bridge={self._make_bridge()}")
        with (self.folder / "log").open("ab") as log:
            subprocess.Popen(  # by a shell that exits at once: the engine may outlive the worker that started it
                ["/bin/sh", "-c", 'exec setsid "$@" &', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ).wait()
        began = time.monotonic()
        while not answers(self.host):
            waited_s = time.monotonic() - began
            if waited_s > START_TIMEOUT_S or (waited_s > DEAD_S and self.pid is None):
                log_end = (self.folder / "log").read_text(errors="replace")[-600:]
                self.kill()
                raise NoEngineError(f"dockerd did not start in {waited_s:.0f} s: {log_end}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it and its containers in good order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9``: its containers live on until it is started again."""
        self._signal(signal.SIGKILL)

    def remove(self) -> None:
        """Stop it and delete all it had."""
        self.stop()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        subprocess.run(["ip", "link", "delete", self._bridge], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _bridge(self) -> str:
        return f"swe{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    def _make_bridge(self) -> str:
        """Create a bridge for this engine: engines that share docker0 break each other."""
        number = int(self._bridge[3:], 16)
        gateway = f"10.{200 + number % 50}.{number // 50 % 250}.1/24"
        if not Path(f"/sys/class/net/{self._bridge}").exists():
            link, address = (
                ["link", "add", self._bridge, "type", "bridge"],
                ["addr", "add", gateway, "dev", self._bridge],
            )
            for command in (link, address):
                if subprocess.run(["ip", *command], check=False, capture_output=True).returncode:
                    raise NoEngineError(f"`ip {' '.join(command)}` failed")
        return self._bridge

    @property
    def pid(self) -> int | None:
        """The process of the engine, if it runs."""
        return _running(self.folder / "pid", "dockerd")

    def _signal(self, number: int) -> None:
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, number)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        child = self.folder / CONTAINERD_PID  # dies with it, a moment later
        while (self.pid or _running(child, "containerd")) and time.monotonic() < deadline:
            time.sleep(0.02)


def _running(pid_file: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        status = Path(f"/proc/{pid}/status").read_text().split()
        if status[1] == name and status[status.index("State:") + 1] != "Z":
            return pid
    return None


def answers(host: str | None) -> bool:
    """Whether an engine answers at ``host`` (None: where the docker command would look)."""
    import docker
    from docker.errors import DockerException

    from swe_argo.steps.sandbox.docker.engine import engine_address, why_unreachable

    host = host or engine_address()
    if why_unreachable(host):
        return False
    try:
        with contextlib.closing(docker.DockerClient(host)) as client:
            return bool(client.ping())
    except (DockerException, OSError):
        return False


@contextlib.contextmanager
def shared_engine() -> Iterator[str | None]:
    """DOCKER_HOST for the tests, None for "as it is": one engine for all test processes, ended by the last of them.

    Raises NoEngineError.
    """
    if answers(None):
        yield None
        return
    SHARED.mkdir(mode=0o700, exist_ok=True)
    engine = Engine(SHARED / "engine")
    with (SHARED / "lock").open("w") as lock:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if answers(engine.host):
                break
            fcntl.flock(lock, fcntl.LOCK_EX)  # not atomic: another process may have started or ended it meanwhile
            if not answers(engine.host):
                engine.start()
        try:
            yield engine.host
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                engine.remove()
