"""Orphaned sandboxes on every backend that is reachable from this machine."""

from __future__ import annotations

from rich.console import Console

from swe_argo.steps.contracts.backends import BACKENDS
from swe_argo.steps.contracts.ids import store_id
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.group_folders import list_dead_groups
from swe_argo.steps.sandbox.orphans import list_orphans, list_run
from swe_argo.steps.settings import has_variables


def clean(
    remove: bool, console: Console, spec: SandboxSpec, run_id: str | None = None, store: str | None = None
) -> None:
    """List orphaned sandboxes, or remove them; sandboxes with a living owner are never touched.

    All backends are listed first: an error of any of them prevents removal.

    Args:
        spec: The cluster and namespace, by default the kubeconfig's, and perhaps a user's own backend.
        run_id: An ended run, whose sandboxes at providers are included: their owners cannot be seen from this machine.
        store: The store of this run; by default any.
    """
    results = [(backend, list_orphans(backend, spec)) for backend in dict.fromkeys((*BACKENDS, spec.backend))]
    results.append(("runs", list_dead_groups()))
    if run_id:
        providers = [backend.name for backend in BACKENDS.values() if backend.keys and has_variables(backend.keys)]
        if not providers:
            raise ConfigError("set the keys of a sandbox provider: none is set here", field="--run-id")
        results += [(backend, list_run(backend, run_id, store_id(store) if store else None)) for backend in providers]
    total, failures = 0, 0
    for backend, orphans in results:
        if orphans.why_not:
            console.print(f"{backend}: skipped: {orphans.why_not}", style="dim", highlight=False, soft_wrap=True)
        for name in orphans.names:
            console.print(
                f"{' '.join(filter(None, (backend, orphans.where)))}: {name}", highlight=False, soft_wrap=True
            )
        if remove and orphans.names:
            for name, reason in orphans.remove().items():
                console.print(f"{name} could not be removed: {reason}", highlight=False, soft_wrap=True, markup=False)
                failures += 1
        total += len(orphans.names)
    if not total:
        console.print("no orphaned sandboxes")
    else:
        console.print(
            f"{total - failures} removed" if remove else f"{total} found; remove them with: swe-argo clean --yes"
        )
