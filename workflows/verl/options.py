"""Options in the yaml of the agent loops, beside the class: the execution of rollouts, never their task."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

from pydantic import ValidationError

from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.local.machines import default_graders
from swe_argo.workflows.rollouts.options import RolloutOptions


class LoopOptions(RolloutOptions):
    """The keys of one entry of ``agent_loops.yaml`` beside ``name`` and ``_target_``."""

    store: str | None = None
    """Store that the export wrote beside the parquet, if a row's ``extra_info.store`` names none."""
    run: str | None = None
    """Its run, if a row's ``extra_info.run`` names none; not needed if the store has one run."""
    keep: Literal["none", "val", "all"] = "val"
    """Rows whose rollouts are stored as units of a run in the store, one run per step: ``<experiment>-val-000010``
    (``trainer.experiment_name``) for ``swe-argo report``."""


def share_graders(options: LoopOptions, backend: str, *, workers: int, nodes: int) -> LoopOptions:
    """Return the options with ``graders`` set: this process' share of the gradings that a node can do at a time.

    ``workers``: number of verl's processes, which verl spreads over the ``nodes``.
    """
    if options.graders is not None:
        return options
    share = default_graders(backend) // ceil(workers / nodes)
    return options.model_copy(update={"graders": max(1, share)})


def read_options(values: dict[str, Any]) -> LoopOptions:
    """Return the options. Raises ConfigError, which names the key, if a value is wrong or a key unknown."""
    try:
        return LoopOptions.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{first['msg']}; valid keys: {', '.join(LoopOptions.model_fields)}", field=field) from None
