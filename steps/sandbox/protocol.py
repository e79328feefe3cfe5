"""The protocols of a sandbox, a running machine with a repository, and of the backend that makes and removes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.errors import StepError


@dataclass(frozen=True)
class ExecResult:
    """The result of a command that ended, well or badly, or timed out: never an error.

    ``exit_code`` is None after a timeout; signals count as 128 + N. With ``merge``, ``stdout`` holds both streams in
    the order of writing and ``stderr`` is empty. ``truncated``: output after ``max_output_bytes`` was dropped.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    seconds: float


@dataclass(frozen=True)
class BundleMount:
    """The files of an agent program, to be mounted read-only at ``swe_argo.steps.contracts.recipe.BUNDLE_PLACE``."""

    digest: str
    folder: Path | None
    """The folder on this machine; None if it is not here."""
    image: str | None
    """The same files as an OCI image, at its root."""


@dataclass(frozen=True)
class SandboxRequest:
    """A request for a sandbox: ``name`` is unique for the try; ``labels`` are run, instance, attempt and role."""

    name: str
    image: str
    deadline_s: float
    network: bool
    labels: dict[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    platform: str = "linux/amd64"
    registry: str | None = None
    isolated: bool = False
    """Refuse (ConfigError) a machine whose commands could reach this host."""
    browsers: bool = False
    """The tests start a browser, whose own sandbox needs CAP_SYS_ADMIN in a container (swebench run_evaluation.py)."""
    resource_factor: float = 1.0
    workdir: str = WORKDIR
    """The folder of the repository in the image."""
    snapshot: str | None = None
    """The snapshot to start from instead of the image, for a backend with ``Snapshots``."""
    bundle: BundleMount | None = None
    store_id: str = ""
    """The run's store (steps/contracts/ids.py): a provider's account may serve runs of several stores."""


FLOOD_BYTES = 256 << 20
"""A started job that prints more is killed: its output would fill the machine's disk."""


@dataclass(frozen=True)
class JobProgress:
    """The state of a started job, and its output since the last poll.

    ``output`` is all new output; if that is more than twice the job's ``ends_bytes``, it is the first ``ends_bytes``
    and ``tail`` the last. ``exit_code`` is None while the job runs, and if ``timed_out`` or ``flooded`` ended it.
    ``note``: of an ended job, the lines of the file that its start named.
    """

    running: bool
    output: bytes
    tail: bytes | None = None
    exit_code: int | None = None
    quiet: bool = False
    timed_out: bool = False
    flooded: bool = False
    note: tuple[str, ...] = ()


class StartedJob(Protocol):
    """A command that runs on between calls, with one output stream. Its methods raise the errors of Sandbox."""

    def poll(
        self,
        *,
        wait_s: float,
        quiet_s: float | None = None,
        kill: bool = False,
        until_output: bool = False,
        data: bytes = b"",
    ) -> JobProgress:
        """Wait for the end, at most ``wait_s``, or until ``quiet_s`` have passed without output; return the new output.

        The job starts with its first poll at the latest. ``kill`` ends it and all its processes, if by then it has
        neither ended nor gone quiet. ``until_output``: return once there is new output, which is seen within half a
        second, or at once if the command writes to its bell (``JobStarter.start``). ``data`` is sent first, which saves
        a round trip. Do not call this again once the job has ended.
        """

    def send(self, data: bytes) -> None:
        """Send input, without waiting for the job to read it."""

    def close_input(self) -> None:
        """Close its input. Idempotent."""

    def interrupt(self) -> None:
        """Send SIGINT to its process group."""


class Sandbox(Protocol):
    """A running machine. Every method raises InfraError if the machine or the connection to it is lost.

    Every method raises ResourceError if the machine as a whole ran out of memory or disk.
    """

    @property
    def machine(self) -> Machine:
        """The machine's description, for the records."""

    def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        cwd: str = WORKDIR,
        env: dict[str, str] | None = None,
        merge: bool = False,
        max_output_bytes: int = 64 << 20,
    ) -> ExecResult:
        """Run ``command`` by ``/bin/bash -c`` as root, stdin empty; kill its whole process group at ``timeout_s``."""

    def read(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Return the content of a regular file; a link is not followed.

        Raises OSError for faults of the path itself: FileNotFoundError (also for pipes and devices), IsADirectoryError,
        ELOOP for a link, EFBIG for a file of more than ``max_bytes``.
        """

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically, and create its folders. Raises OSError for faults of the path itself."""

    def outside_failure(self) -> StepError | None:
        """Return the machine's failure as its host reports it, or None if the host knows of none.

        Reports from inside the machine do not count, nor does the end of its first process: code that runs in the
        machine can cause both.
        """


@runtime_checkable
class JobStarter(Protocol):
    """A sandbox whose commands can run on between calls, which some agents need."""

    def start(
        self,
        command: str,
        *,
        ends_bytes: int = 512 << 10,
        note: str | None = None,
        bell: str | None = None,
        cwd: str = WORKDIR,
        env: dict[str, str] | None = None,
    ) -> StartedJob:
        """Start a command by ``/bin/bash -c`` in a session of its own, with open input, and return it running.

        ``note``: absolute path of a file, written by nobody else, whose lines are returned with the command's end.
        ``bell``: a variable for the path of a wake-up FIFO, if the backend has one: a byte in it wakes a waiting poll.
        """


class Backend(Protocol):
    """A maker of sandboxes."""

    def create(self, request: SandboxRequest) -> Sandbox:
        """Create a running sandbox. Raises InfraError if it could not be made, ConfigError if it never can."""

    def destroy(self, sandbox: Sandbox) -> None:
        """Remove a sandbox and everything in it. Idempotent."""


@runtime_checkable
class Snapshots(Protocol):
    """A backend that can save a machine's state and start others from it (``SandboxRequest.snapshot``)."""

    def snapshot(self, sandbox: Sandbox, name: str) -> str:
        """Save a sandbox's state under a new name; return the snapshot's id. Raises InfraError, ConfigError."""

    def remove_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot by id, or by name if no id is known. Idempotent. Raises InfraError, ConfigError."""
