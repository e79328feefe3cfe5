"""The splits of an export, and the names of the runs that rollouts of a training are kept as: one a split and step."""

from __future__ import annotations

import re
from typing import Final

from steps.contracts.ids import RUN_ID_RULE, is_run_id
from steps.errors import ConfigError

TRAINING: Final = "train"
VALIDATION: Final = "val"
"""``extra_info.split`` of rows that nothing is learnt from."""
FILES: Final = {split: f"{split}.parquet" for split in (TRAINING, VALIDATION)}
"""Split -> file of its rows."""


def name_of_kept_run(experiment: str, split: str, step: int) -> str:
    """The run of one step's rollouts. Raises ConfigError where the experiment's name can be in none."""
    name = f"{experiment}-{split}-{step:06d}"
    if not is_run_id(name):
        raise ConfigError(f"no run is called {name!r}: names take {RUN_ID_RULE}", field="trainer.experiment_name")
    return name


def is_kept_run(name: str) -> bool:
    """Whether a run is called as those are."""
    return _ENDING.search(name) is not None


_ENDING: Final = re.compile(rf"-({TRAINING}|{VALIDATION})-\d{{6,}}$")
