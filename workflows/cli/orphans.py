"""Sandboxes that outlived their owners, on every backend that can be asked from here."""

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
    """List orphans, and remove them where ``remove``. Never touches what somebody still owns.

    All backends are asked before anything is removed: what one of them raises ends it.

    ``spec`` names the cluster and the namespace to ask, by default those of the kubeconfig, and perhaps a backend of
    one's own. ``run_id``: a run that is over, whose sandboxes at providers are removed, too: whether the pods live that
    made them cannot be seen from here. ``store``: of the run in this one; by default of all that are called so.
    """
    found = [(backend, list_orphans(backend, spec)) for backend in dict.fromkeys((*BACKENDS, spec.backend))]
    found.append(("runs", list_dead_groups()))
    if run_id:
        providers = [each.name for each in BACKENDS.values() if each.keys and has_variables(each.keys)]
        if not providers:
            raise ConfigError("no key of a provider of sandboxes is set here", field="--run-id")
        found += [(backend, list_run(backend, run_id, store_id(store) if store else None)) for backend in providers]
    total, failures = 0, 0
    for backend, orphans in found:
        if orphans.why_not:
            console.print(f"{backend}: not asked: {orphans.why_not}", style="dim", highlight=False, soft_wrap=True)
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
