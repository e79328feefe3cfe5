"""Lookup of a training in its store by name, and the error for a missing one."""

from __future__ import annotations

import difflib
import re

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import TrainFile
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store.protocol import Store
from swe_argo.steps.store.runs import store_flag

_RUN_OF = re.compile(r"(.+)\.\d{6}(\.held-out)?")
"""Names in the form of ``run_of`` and ``held_out_run_of``."""


def is_training(store: Store, name: str) -> bool:
    """Return whether a name given by the user is a training's; a run of that name takes precedence."""
    training, run = key(TrainFile, name), key(RunFile, name)
    return store.get_many([training, run]).keys() == {training}


def training_of(store: Store, name: str) -> TrainFile:
    """Return a training's first file. Raises ConfigError if there is no such training, or it is unreadable."""
    place = key(TrainFile, name)
    try:
        return TrainFile.from_bytes(store.get(place))
    except FileNotFoundError:
        near = difflib.get_close_matches(name, trainings_of(store), 2, 0.75)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        message = f"there is no training {name!r} in {store.url}{hint}; swe-argo runs{store_flag(store)} lists them"
        raise ConfigError(message, field="training") from None
    except ValueError:  # includes pydantic's errors
        message = f"{store.locate(place)} is broken, or of another version of swe-argo"
        raise ConfigError(message, field="training") from None


def trainings_of(store: Store) -> list[str]:
    """Return the names of all started trainings, sorted."""
    names = store.folders("trainings/")
    there = store.get_many(key(TrainFile, name) for name in names)
    return [name for name in names if key(TrainFile, name) in there]


def training_of_run(run: str, *, measured: bool = False) -> str | None:
    """Return the training in a run's name, or None. ``measured``: only for a held-out measurement."""
    found = _RUN_OF.fullmatch(run)
    return found[1] if found and (found[2] or not measured) else None
