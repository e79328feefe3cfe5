"""The folder that a runner keeps for its groups (sandbox/groups.py), removed at its end or by the next runner."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from swe_argo.steps.contracts.backends import backend_named, is_own_backend
from swe_argo.steps.contracts.data import Plan, Stage
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.host.folders import is_dead, process_owner
from swe_argo.steps.sandbox import open_backend
from swe_argo.steps.sandbox.groups import SnapshotRecord
from swe_argo.steps.sandbox.orphans import Orphans
from swe_argo.steps.sandbox.protocol import Snapshots
from swe_argo.steps.settings import settings

ADDRESS = "SWE_ARGO_GROUPS"
_OWNER, _SPEC = "owner", "sandbox.json"


def group_notices(spec: SandboxSpec, attempts: int) -> list[str]:
    """Return the reasons why a run that asks for groups gets none."""
    if not spec.group_from_snapshot:
        return []
    prepares = "each attempt prepares a machine of its own, as without --group-from-snapshot"
    if settings().pod_name is not None:
        return [f"the attempts of a pipeline are pods that know nothing of each other: {prepares}"]
    if not is_own_backend(spec.backend) and not backend_named(spec.backend).snapshots:
        return [f"backend {spec.backend} has no snapshots: {prepares}"]
    return [] if attempts > 1 else ["--group-from-snapshot is for --attempts of 2 or more: there is one attempt"]


@contextmanager
def groups_of(spec: SandboxSpec, plan: Plan) -> Iterator[Mapping[str, str]]:
    """Yield the steps' environment variables of a run with groups, else {}; remove its snapshots at the end."""
    many = {unit.attempt for unit in plan.to_do if unit.begins is Stage.SOLVE}
    may = is_own_backend(spec.backend) or backend_named(spec.backend).snapshots
    if not (spec.group_from_snapshot and may and len(many) > 1):
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
        yield {ADDRESS: str(folder)}
    finally:
        _remove(folder)  # anything left over is removed by the next run or by `swe-argo clean`


def list_dead_groups() -> Orphans:
    """Return the snapshots of dead runners on this machine. Never raises."""
    dead = {}
    for folder in _root().glob("*"):
        with suppress(OSError):
            if is_dead((folder / _OWNER).read_text("utf-8")):
                dead[folder] = [f"snapshot {record.name}" for record in _records(folder)]
    names = sorted(name for found in dead.values() for name in found)
    return Orphans(names, lambda: {k: v for folder in dead for k, v in _remove(folder).items()}, where="groups")


def _remove(folder: Path) -> dict[str, str]:
    """Remove a group's snapshots, then its folder. Return the remaining ones, each with the reason."""
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
    """Return a group's records. One without a snapshot id may still have a snapshot, if the response was lost."""
    records = []
    for file in sorted(folder.glob("*.json")):
        if file.name != _SPEC:
            with suppress(OSError, ValueError):
                records.append(SnapshotRecord.model_validate_json(file.read_bytes()))
    return records


def _root() -> Path:
    return settings().home_folder / "groups"
