"""Shell completions, made without network access."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from swe_argo.steps.contracts.agents import AGENTS
from swe_argo.steps.contracts.backends import BACKENDS
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets.known import short_names
from swe_argo.steps.errors import StepError
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store


def offer_runs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the runs of a store that is a folder, newest last; none for a bucket, which would take too long."""
    store = str(context.params.get("store") or settings().store or RunSpec().store)
    if store.startswith("s3:"):
        return []
    with suppress(StepError):
        return [name for name in open_store(store).folders("runs/") if name.startswith(incomplete)]
    return []


def _offer(names: list[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


FIELD_COMPLETIONS: dict[str, Any] = {
    "agent.name": _offer(list(AGENTS)),
    "sandbox.backend": _offer(list(BACKENDS)),
    "dataset": _offer(short_names()),
}
"""Field -> completion function of its flag."""
