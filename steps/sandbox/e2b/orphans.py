"""Sandboxes at the service that somebody of ours left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from e2b import SandboxInfo

from steps.contracts.run_spec import SandboxSpec
from steps.errors import ConfigError, StepError
from steps.host.folders import is_dead
from steps.sandbox.e2b.routes import list_sandboxes
from steps.sandbox.e2b.service import KIND, kill_sandbox
from steps.sandbox.orphans import Orphans

WHERE = "E2B"


def list_orphans(spec: SandboxSpec) -> Orphans:
    """Those of the account. Where no key is set nothing of ours runs there; what does not answer is named."""
    try:
        found = find_orphans()
    except StepError as error:
        if spec.backend == "e2b" and isinstance(error, ConfigError):
            raise
        return Orphans(why_not="" if isinstance(error, ConfigError) else error.reason)
    return Orphans(sorted(found), lambda: remove_orphans(found), where=WHERE)


def list_run(run_id: str, store_id: str | None = None) -> Orphans:
    """The sandboxes of a run that is over, whoever made them; of one store's run where that is known.

    Raises ConfigError, InfraError.
    """
    found = {
        name: sandbox.sandbox_id
        for name, sandbox in _ours(run=run_id)
        if store_id in (None, sandbox.metadata.get("store"))
    }
    return Orphans(sorted(found), lambda: remove_orphans(found), where=WHERE)


def find_orphans() -> dict[str, str]:
    """Name -> id of our sandboxes whose owner, on this machine, is dead. Never others'.

    Raises ConfigError, InfraError.
    """
    return {name: sandbox.sandbox_id for name, sandbox in _ours() if is_dead(sandbox.metadata.get("owner", ""))}


def _ours(**labels: str) -> Iterator[tuple[str, SandboxInfo]]:
    names: set[str] = set()
    for sandbox in list_sandboxes({"swe-argo": KIND, **labels}):
        name = sandbox.metadata.get("name", sandbox.sandbox_id)
        yield f"{name} {sandbox.sandbox_id}" if name in names else name, sandbox
        names.add(name)


def remove_orphans(found: Mapping[str, str]) -> dict[str, str]:
    """Remove them; the names of those that are left, and why."""
    failures = {}
    for name, sandbox_id in found.items():
        try:
            kill_sandbox(sandbox_id)
        except StepError as error:
            failures[name] = error.reason
    return failures
