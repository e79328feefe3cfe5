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
"""Ids of a training's runs: <training>.<six-digit step>, with .held-out for a measurement (contracts/training.py)."""


def is_training(store: Store, name: str) -> bool:
    """Return whether a name given by the user is a training's; a run of that name takes precedence."""
    training, run = key(TrainFile, name), key(RunFile, name)
    return store.get_many([training, run]).keys() == {training}


def training_of(store: Store, name: str) -> TrainFile:
    """Return a training's TrainFile. Raises ConfigError if there is no such training, or it is unreadable."""
    file_key = key(TrainFile, name)
    try:
        return TrainFile.from_bytes(store.get(file_key))
    except FileNotFoundError:
        near = difflib.get_close_matches(name, trainings_of(store), 2, 0.75)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        message = f"there is no training {name!r} in {store.url}{hint}; swe-argo runs{store_flag(store)} lists them"
        raise ConfigError(message, field="training") from None
    except ValueError:  # includes pydantic's errors
        message = f"{store.locate(file_key)} is broken or from another version of swe-argo"
        raise ConfigError(message, field="training") from None


def trainings_of(store: Store) -> list[str]:
    """Return the names of all started trainings, sorted."""
    names = store.folders("trainings/")
    existing = store.get_many(key(TrainFile, name) for name in names)
    return [name for name in names if key(TrainFile, name) in existing]


def training_of_run(run: str, *, measured: bool = False) -> str | None:
    """Return the training that a run's name begins with; None if the name has another form.

    ``measured``: whether only names of held-out measurements count.
    """
    match = _RUN_OF.fullmatch(run)
    return match[1] if match and (match[2] or not measured) else None
