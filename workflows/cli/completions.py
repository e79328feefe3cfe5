"""What a shell offers for a word that is not whole yet. Nothing is asked of a network for it."""

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
    """The runs of the folder that is the store, newest last; of a bucket none: a shell does not wait for one."""
    store = str(context.params.get("store") or settings().store or RunSpec().store)
    if store.startswith("s3:"):
        return []
    with suppress(StepError):
        return [name for name in open_store(store).folders("runs/") if name.startswith(incomplete)]
    return []


def _offer(words: list[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


OF_FIELDS: dict[str, Any] = {
    "agent.name": _offer(list(AGENTS)),
    "sandbox.backend": _offer(list(BACKENDS)),
    "dataset": _offer(short_names()),
}
"""Field -> what is offered for its flag."""
