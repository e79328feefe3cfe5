"""Sandboxes that outlived their owners, as their backend finds them."""

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
    """Never what somebody still owns."""

    names: list[str] = field(default_factory=list)
    remove: Callable[[], Mapping[str, str]] = dict
    """Removes them; gives those that could not be removed, and why."""
    where: str = ""
    """The part of the backend in which they are, if it has parts."""
    why_not: str = ""
    """Why the backend could not be asked, where the spec does not insist on it."""


def list_orphans(backend: str, spec: SandboxSpec) -> Orphans:
    """Ask the backend. Raises ConfigError, and InfraError where it does not answer.

    Of ours that cannot be imported for want of a package nothing runs.
    """
    try:
        ask = load_part(backend, "orphans", "list_orphans")
    except ConfigError:
        if is_own_backend(backend):
            raise
        return Orphans()
    return cast(Orphans, ask(spec)) if ask else Orphans()


def list_run(backend: str, run_id: str, store_id: str | None = None) -> Orphans:
    """The sandboxes of a run that is over at the provider of a backend, whoever made them.

    ``store_id``: of the store that keeps the run; those of all stores by default. None of a backend without a provider.
    Raises ConfigError without keys, InfraError where the provider does not answer.
    """
    ask = load_part(backend, "orphans", "list_run") if backend_named(backend).keys else None
    return cast(Orphans, ask(run_id, store_id)) if ask else Orphans()


def list_remaining(names: Iterable[str], removed: Collection[str]) -> dict[str, str]:
    """Those of ``names`` that are not among the removed ones, and why, as ``Orphans.remove`` gives them."""
    return {name: "it is still there" for name in names if name not in removed}
