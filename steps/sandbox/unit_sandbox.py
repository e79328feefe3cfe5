"""Creation of a fresh sandbox of the run's backend for one try of one attempt."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from swe_argo.steps.contracts.backends import backend_named
from swe_argo.steps.contracts.data import Instance, RunFile, TaskMachine
from swe_argo.steps.contracts.ids import store_id
from swe_argo.steps.contracts.run_spec import MAX_RESOURCE_FACTOR
from swe_argo.steps.contracts.unit_progress import SILENT, ProgressWriter
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.sandbox import open_backend
from swe_argo.steps.sandbox.bundle_upload import upload_bundle
from swe_argo.steps.sandbox.command_log import with_command_log
from swe_argo.steps.sandbox.groups import GroupMember
from swe_argo.steps.sandbox.protocol import Backend, BundleMount, Sandbox, SandboxRequest
from swe_argo.steps.sandbox.wrapper import at_folder, with_variables


@dataclass(frozen=True)
class Context:
    """The try and attempt that this process works on."""

    attempt: int
    try_name: str
    resource_factor: float = 1.0
    leaves: Path | None = None
    """Folder for files worth keeping if this try fails; it is gone if the try succeeds."""
    progress: ProgressWriter = SILENT
    """Receives the progress of this try."""
    store: str = ""
    """The run's store, where this try may read the files of earlier tries and save files for a later one."""
    kept_as: str = ""
    """Name of this try's folder there."""


@contextmanager
def open_sandbox(
    context: Context,
    run: RunFile,
    instance: Instance,
    *,
    step: str,
    network: bool,
    deadline_s: float,
    isolated: bool = False,
    browsers: bool = False,
    number: int = 1,
    member: GroupMember | None = None,
    bundle: BundleMount | None = None,
) -> Iterator[Sandbox]:
    """Yield a fresh sandbox of the run's backend for this try, its ``number``-th; always destroy it at the end.

    ``member``: allows it to start from a snapshot, and other attempts from a snapshot of it.
    """
    spec, needs = run.spec.sandbox, instance.machine or TaskMachine()
    context.progress.begin(run.run_id, instance.instance_id, context.attempt, step)
    backend = open_backend(spec)
    request = SandboxRequest(
        name=_machine_name(run.run_id, instance.instance_id, context, step, number),
        image=instance.image,
        deadline_s=deadline_s,
        network=network,
        labels={
            "run": run.run_id,
            "instance": instance.instance_id,
            "attempt": str(context.attempt),
            "role": step,
        },
        cpus=spec.cpus or needs.cpus,
        memory_mb=spec.memory_mb or needs.memory_mb,
        disk_mb=spec.disk_mb or needs.disk_mb,
        platform=spec.platform,
        registry=spec.registry,
        isolated=isolated and not spec.allow_host,
        browsers=browsers,
        resource_factor=_factor(instance.resource_factor, context.resource_factor),
        workdir=instance.workdir,
        bundle=bundle,
        store_id=store_id(run.spec.store),
    )
    box = _create(backend, member or GroupMember(), request)
    try:
        if not backend_named(spec.backend).mounts_bundles:
            upload_bundle(box, request)
        yield with_variables(with_command_log(at_folder(box, instance.workdir)), needs.variables)
    finally:
        # A machine that cannot be removed has a deadline of its own, and `swe-argo clean` finds it. The failure to
        # remove it hides neither finished work nor the reason of unfinished work.
        try:
            backend.destroy(box)
        except StepError as error:
            sys.stderr.write(f"{step}: left behind: {error.reason}\n")


def _create(backend: Backend, member: GroupMember, request: SandboxRequest) -> Sandbox:
    try:
        box = backend.create(replace(request, snapshot=member.snapshot))
    except ConfigError:
        if member.snapshot is None:
            raise
        member.begin_from_image()  # the snapshot is gone; any other fault shows again
        box = backend.create(request)
    member.has(backend, box)
    return box


def _factor(base: float, retried: float) -> float:
    """Return the resource factor of a retry, bounded by MAX_RESOURCE_FACTOR unless the request itself exceeds it."""
    return min(base * retried, max(base, MAX_RESOURCE_FACTOR))


def _machine_name(run: str, instance: str, context: Context, step: str, number: int = 1) -> str:
    """Return a name unique for the try, legal for containers, pods and hosts: 63 characters, the try whole."""
    which = f"{step}-{context.attempt}-{context.try_name}" + (f"-{number}" if number > 1 else "")
    tail = re.sub(r"[^a-z0-9]+", "-", which.lower())[-36:].strip("-")
    head = re.sub(r"[^a-z0-9]+", "-", f"sb-{instance}-{run}".lower())[: 62 - len(tail)].strip("-")
    return f"{head}-{tail}"
