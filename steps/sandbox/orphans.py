"""Orphaned sandboxes, as their backend lists them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from swe_argo.steps.contracts.backends import backend_named, is_own_backend
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox import load_part


@dataclass(frozen=True)
class Orphans:
    """Orphaned sandboxes; never includes one that still has an owner."""

    names: list[str] = field(default_factory=list)
    remove: Callable[[], Mapping[str, str]] = dict
    """Removes them. Returns the names that could not be removed, each with the reason."""
    where: str = ""
    """The part of the backend that holds them, if it has parts."""
    why_not: str = ""
    """The reason why the backend could not be asked, if the spec does not require it."""


def list_orphans(backend: str, spec: SandboxSpec) -> Orphans:
    """Ask the backend for its orphans. Raises ConfigError, and InfraError if it does not answer.

    A built-in backend whose package is missing has none, since it cannot run anything.
    """
    try:
        ask = load_part(backend, "orphans", "list_orphans")
    except ConfigError:
        if is_own_backend(backend):
            raise
        return Orphans()
    return cast(Orphans, ask(spec)) if ask else Orphans()


def list_run(backend: str, run_id: str, store_id: str | None = None) -> Orphans:
    """List the sandboxes of a finished run at the backend's provider, whichever machine made them.

    ``store_id``: the store that keeps the run; default: all stores. A backend without a provider has none. Raises
    ConfigError without keys, InfraError if the provider does not answer.
    """
    ask = load_part(backend, "orphans", "list_run") if backend_named(backend).keys else None
    return cast(Orphans, ask(run_id, store_id)) if ask else Orphans()


def list_remaining(names: Iterable[str], removed: Collection[str]) -> dict[str, str]:
    """Return the ``names`` that were not removed, each with a reason, as ``Orphans.remove`` returns them."""
    return {name: "it is still there" for name in names if name not in removed}
