"""What the yaml of the agent loops says beside the class: how rollouts are run, never what the task is."""

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
    """Store that the export wrote beside the parquet, where a row's ``extra_info.store`` names none."""
    run: str | None = None
    """Its run, where a row's ``extra_info.run`` names none; not needed where the store has one run."""
    keep: Literal["none", "val", "all"] = "val"
    """Rollouts of which rows are kept as units of a run in the store, one run a step: ``<experiment>-val-000010``
    (``trainer.experiment_name``) for ``swe-argo report``."""


def share_graders(options: LoopOptions, backend: str, *, workers: int, nodes: int) -> LoopOptions:
    """The same, with ``graders`` for one of so many worker processes, which verl spreads over the nodes."""
    if options.graders is not None:
        return options
    share = default_graders(backend) // ceil(workers / nodes)
    return options.model_copy(update={"graders": max(1, share)})


def read_options(given: dict[str, Any]) -> LoopOptions:
    """Raises ConfigError naming the key."""
    try:
        return LoopOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{first['msg']}; there are {', '.join(LoopOptions.model_fields)}", field=field) from None
