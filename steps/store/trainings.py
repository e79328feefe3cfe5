"""A training in its store by name, and what is said of one that is not there."""

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
"""Names as ``run_of`` and ``held_out_run_of`` make them."""


def is_training(store: Store, name: str) -> bool:
    """Whether a name that a person gave is that of a training; where there is a run of that name it is the run's."""
    training, run = key(TrainFile, name), key(RunFile, name)
    return store.get_many([training, run]).keys() == {training}


def training_of(store: Store, name: str) -> TrainFile:
    """Its first file. Raises ConfigError where there is no such training, or the file cannot be read."""
    place = key(TrainFile, name)
    try:
        return TrainFile.from_bytes(store.get(place))
    except FileNotFoundError:
        near = difflib.get_close_matches(name, trainings_of(store), 2, 0.75)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        message = f"there is no training {name!r} in {store.url}{hint}; swe-argo runs{store_flag(store)} lists them"
        raise ConfigError(message, field="training") from None
    except ValueError:  # pydantic's too
        message = f"{store.locate(place)} is broken, or of another version of swe-argo"
        raise ConfigError(message, field="training") from None


def trainings_of(store: Store) -> list[str]:
    """The names of all trainings that were begun, sorted."""
    names = store.folders("trainings/")
    there = store.get_many(key(TrainFile, name) for name in names)
    return [name for name in names if key(TrainFile, name) in there]


def training_of_run(run: str, *, measured: bool = False) -> str | None:
    """The training that a run would be of by its name; None where it is of none. ``measured``: as a measurement."""
    found = _RUN_OF.fullmatch(run)
    return found[1] if found and (found[2] or not measured) else None
