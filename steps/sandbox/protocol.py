"""What a sandbox is: a running machine with a repository, and the backend that makes and removes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.errors import StepError


@dataclass(frozen=True)
class ExecResult:
    """A command that ended, well or badly, or ran out of time: always a result, never an error.

    ``exit_code`` is None when the command was ended by its timeout; signals count as 128 + N. Where ``merge`` was asked
    for, ``stdout`` holds both streams in the order they were written and ``stderr`` is empty. ``truncated``: what came
    after ``max_output_bytes`` was left out.
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
    """On this machine; None where it is not here."""
    image: str | None
    """The same files as an OCI image, at its root."""


@dataclass(frozen=True)
class SandboxRequest:
    """What is asked of a backend: ``name`` is unique for the try; ``labels`` are run, instance, attempt and role."""

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
    """Where the image has the repository."""
    snapshot: str | None = None
    """Of a backend with ``Snapshots``: begin from this one, not from the image."""
    bundle: BundleMount | None = None
    store_id: str = ""
    """Of the store that keeps the run (steps/contracts/ids.py): a provider's account may serve runs of several."""


FLOOD_BYTES = 256 << 20
"""A started job that prints more is ended: its output would fill the machine's disk."""


@dataclass(frozen=True)
class JobProgress:
    """How a started job was found, and what it has printed since it was last looked at.

    ``output`` is all that is new; where that is more than twice the job's ``ends_bytes``, it is the beginning and
    ``tail`` the end, so many bytes of each. ``exit_code`` is None while it runs, and where it was ended by
    ``timed_out`` or ``flooded``. ``note``: of an ended job, the lines of the file that its start named.
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
    """A command that goes on between calls, stdout and stderr in one stream. Its methods raise what Sandbox's do."""

    def poll(
        self,
        *,
        wait_s: float,
        quiet_s: float | None = None,
        kill: bool = False,
        until_output: bool = False,
        data: bytes = b"",
    ) -> JobProgress:
        """Wait for the end, at most ``wait_s``, or until ``quiet_s`` have passed without output; then what is new.

        It begins with its first poll at the latest. ``kill`` ends it with all it started, where it has not ended and
        not gone quiet by then. ``until_output``: do not wait once there is something new, which is seen within half a
        second, or at once where the command rings (``JobStarter.start``). ``data`` is sent first, which saves a way
        there and back. Not to be called again once it has ended.
        """

    def send(self, data: bytes) -> None:
        """Give it input, which nobody need be reading: this does not wait for that."""

    def close_input(self) -> None:
        """End its input. Twice is once."""

    def interrupt(self) -> None:
        """SIGINT to its process group."""


class Sandbox(Protocol):
    """A running machine. Every method raises InfraError when the machine or the way to it is lost,

    ResourceError when the machine as a whole ran out of memory or disk.
    """

    @property
    def machine(self) -> Machine:
        """What is recorded of it."""

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
        """Run ``command`` by ``/bin/bash -c`` as root, stdin empty; its whole process group ends at ``timeout_s``."""

    def read(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """A regular file's content; a link is not followed. Raises OSError for what the path itself forbids:

        FileNotFoundError (also for pipes and devices), IsADirectoryError, of ELOOP for a link, of EFBIG for a file of
        more than ``max_bytes``.
        """

    def write(self, path: str, data: bytes) -> None:
        """Write a file, its folders made, atomically. Raises OSError for what the path itself forbids."""

    def outside_failure(self) -> StepError | None:
        """What befell the machine by the word of whoever runs it; None where that one knows of nothing.

        What the machine says of itself is no part of it, nor that its first process ended: what runs in a machine can
        bring about both.
        """


@runtime_checkable
class JobStarter(Protocol):
    """A sandbox whose commands can go on between calls, which some agents need."""

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
        """A command that is looked at while it runs, by ``/bin/bash -c`` in a session of its own, its input open.

        ``note``: absolute path of a file, not to be written by others, whose lines are told with the command's end.
        ``bell``: a variable that names a FIFO, where that is of use: a byte in it wakes who waits for output.
        """


class Backend(Protocol):
    """What makes sandboxes."""

    def create(self, request: SandboxRequest) -> Sandbox:
        """A running sandbox. Raises InfraError when it could not be made, ConfigError when it never can."""

    def destroy(self, sandbox: Sandbox) -> None:
        """Remove it and everything in it. Twice is once."""


@runtime_checkable
class Snapshots(Protocol):
    """A backend that can keep a machine's state and make others from it (``SandboxRequest.snapshot``)."""

    def snapshot(self, sandbox: Sandbox, name: str) -> str:
        """Keep its state under a new name; the id of what is kept. It goes on. Raises InfraError, ConfigError."""

    def remove_snapshot(self, snapshot: str) -> None:
        """By id, or by name where no id is known. Twice is once. Raises InfraError, ConfigError."""
