"""Splits of an export, and names of the runs that store rollouts of a training: one per split and step."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from swe_argo.steps.contracts.ids import is_run_id

TRAINING: Final = "train"
VALIDATION: Final = "val"
"""``extra_info.split`` of rows that nothing is learnt from."""
FILES: Final = {split: f"{split}.parquet" for split in (TRAINING, VALIDATION)}
"""Split -> file of its rows."""


def name_of_kept_run(experiment: str, split: str, step: int) -> str:
    """Return the name of the run for one step's rollouts: ``grpo-val-000005``.

    If an experiment's name is not valid in a run id, its valid parts are used, with a digest of the whole.
    """
    return f"{_make_legal(experiment)}-{split}-{step:06d}"


def is_kept_run(name: str) -> bool:
    """Return whether a run has such a name."""
    return _ENDING.search(name) is not None


def _make_legal(experiment: str) -> str:
    """Return the experiment's name in a form that is valid in all these run ids."""
    if is_run_id(f"{experiment}{_LONGEST}"):
        return experiment
    words = re.findall(r"[A-Za-z0-9]+", experiment)
    digest = hashlib.sha256(experiment.encode()).hexdigest()[:_DIGITS]
    return f"{'-'.join(words)[:_KEPT]}-{digest}".lstrip("-")


_LONGEST: Final = f"-{TRAINING}-{10**9}"
_KEPT, _DIGITS = 30, 8
"""Characters of such a name, and of its digest."""
_ENDING: Final = re.compile(rf"-({TRAINING}|{VALIDATION})-\d{{6,}}$")
