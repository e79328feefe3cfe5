"""Sandboxes at the service that somebody of ours left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steps.contracts.run_spec import SandboxSpec
from steps.errors import ConfigError, StepError
from steps.host.folders import is_dead
from steps.sandbox.ags.control import stop
from steps.sandbox.ags.instances import our_instances
from steps.sandbox.ags.service import place
from steps.sandbox.orphans import Orphans


def list_orphans(spec: SandboxSpec) -> Orphans:
    """Those of the account. Where no key is set nothing of ours runs there; what does not answer is named."""
    try:
        found = find_orphans()
    except StepError as error:
        if spec.backend == "ags" and isinstance(error, ConfigError):
            raise
        return Orphans(why_not="" if isinstance(error, ConfigError) else error.reason)
    return Orphans(sorted(found), lambda: remove_orphans(found), where=place())


def list_run(run_id: str, store_id: str | None = None) -> Orphans:
    """The sandboxes of a run that is over, whoever made them; of one store's run where that is known.

    Raises ConfigError, InfraError.
    """
    found = {
        name: number
        for name, number, metadata in _named_instances()
        if metadata.get("run") == run_id and store_id in (None, metadata.get("store"))
    }
    return Orphans(sorted(found), lambda: remove_orphans(found), where=place())


def find_orphans() -> dict[str, str]:
    """Name -> id of our sandboxes whose owner, on this machine, is dead. Never others'.

    Raises ConfigError, InfraError.
    """
    return {name: number for name, number, metadata in _named_instances() if is_dead(metadata.get("owner", ""))}


def _named_instances() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Each under a name that no other has: of one name there are two where the answer to a start was lost."""
    names: set[str] = set()
    for number, metadata in our_instances():
        name = metadata.get("name") or number
        yield f"{name} {number}" if name in names else name, number, metadata
        names.add(name)


def remove_orphans(found: Mapping[str, str]) -> dict[str, str]:
    """Remove them; the names of those that are left, and why."""
    failures = {}
    for name, instance_id in found.items():
        try:
            stop(instance_id)
        except StepError as error:
            failures[name] = error.reason
    return failures
