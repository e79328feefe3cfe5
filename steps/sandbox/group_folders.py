"""The folder of a runner's groups (sandbox/groups.py), removed at its end or by the next runner."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from swe_argo.steps.contracts.backends import find_backend, is_own_backend
from swe_argo.steps.contracts.data import Plan, Stage
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.host.folders import is_dead, process_owner
from swe_argo.steps.sandbox import open_backend
from swe_argo.steps.sandbox.groups import SnapshotRecord
from swe_argo.steps.sandbox.orphans import Orphans
from swe_argo.steps.sandbox.protocol import Snapshots
from swe_argo.steps.settings import settings

GROUPS_VARIABLE = "SWE_ARGO_GROUPS"
"""Environment variable that names the folder to the steps."""
_OWNER, _SPEC = "owner", "sandbox.json"
"""Files of the folder: the runner's process, and the sandbox spec with which its snapshots are removed."""


def group_notices(spec: SandboxSpec, attempts: int) -> list[str]:
    """Return a notice if ``group_from_snapshot`` is set but has no effect on this run; else nothing."""
    if not spec.group_from_snapshot:
        return []
    prepares = "each attempt prepares its own machine, as without --group-from-snapshot"
    if settings().pod_name is not None:
        return [f"the attempts of a pipeline are separate pods: {prepares}"]
    if not is_own_backend(spec.backend) and not find_backend(spec.backend).snapshots:
        return [f"backend {spec.backend} has no snapshots: {prepares}"]
    return [] if attempts > 1 else ["--group-from-snapshot has no effect with one attempt: set --attempts to 2 or more"]


@contextmanager
def groups_of(spec: SandboxSpec, plan: Plan) -> Iterator[Mapping[str, str]]:
    """Create the run's folder of groups; yield environment variables for its steps. Remove its snapshots at the end.

    Yields {} if the run has no groups: not requested, no snapshots, or only one attempt to solve.
    """
    attempts = {unit.attempt for unit in plan.to_do if unit.begins is Stage.SOLVE}
    has_snapshots = is_own_backend(spec.backend) or find_backend(spec.backend).snapshots
    if not (spec.group_from_snapshot and has_snapshots and len(attempts) > 1):
        yield {}
        return
    with suppress(StepError):
        dead = list_dead_groups()
        dead.remove()
    folder = _root() / process_owner().replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _OWNER).write_text(process_owner(), "utf-8")
    (folder / _SPEC).write_text(spec.model_dump_json(), "utf-8")
    try:
        yield {GROUPS_VARIABLE: str(folder)}
    finally:
        _remove(folder)  # anything left over is removed by the next run or by `swe-argo clean`


def list_dead_groups() -> Orphans:
    """List the snapshots that dead runners of this machine left behind. Never raises."""
    dead = {}
    for folder in _root().glob("*"):
        with suppress(OSError):
            if is_dead((folder / _OWNER).read_text("utf-8")):
                dead[folder] = [f"snapshot {record.name}" for record in _records(folder)]
    names = sorted(name for snapshots in dead.values() for name in snapshots)
    return Orphans(names, lambda: {k: v for folder in dead for k, v in _remove(folder).items()}, where="groups")


def _remove(folder: Path) -> dict[str, str]:
    """Remove a runner's snapshots, then its folder. Return the snapshots that remain, each with the reason."""
    failures = {}
    try:
        spec = SandboxSpec.model_validate_json((folder / _SPEC).read_bytes())
        records = _records(folder)
        backend = open_backend(spec) if records else None
    except (OSError, ValueError, StepError) as error:
        return {f"group {folder.name}": str(error)}
    for record in records:
        try:
            if isinstance(backend, Snapshots):
                backend.remove_snapshot(record.snapshot or record.name)
        except StepError as error:
            failures[f"snapshot {record.name}"] = error.reason
    if not failures:
        shutil.rmtree(folder, ignore_errors=True)
    return failures


def _records(folder: Path) -> list[SnapshotRecord]:
    """Return the snapshot records in a runner's folder, without unreadable ones.

    A snapshot may exist even if its record has no id: the answer may have been lost.
    """
    records = []
    for file in sorted(folder.glob("*.json")):
        if file.name != _SPEC:
            with suppress(OSError, ValueError):
                records.append(SnapshotRecord.model_validate_json(file.read_bytes()))
    return records


def _root() -> Path:
    return settings().home_folder / "groups"
