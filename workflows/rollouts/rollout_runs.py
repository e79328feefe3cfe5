"""Splits of an export, and names of the runs that store rollouts of a training: one per split and step."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from swe_argo.steps.contracts.ids import is_run_id

TRAINING: Final = "train"
VALIDATION: Final = "val"
"""``extra_info.split`` of validation rows."""
FILES: Final = {split: f"{split}.parquet" for split in (TRAINING, VALIDATION)}
"""Split -> file of its rows."""


def rollout_run_name(experiment: str, split: str, step: int) -> str:
    """Return the name of the run for one step's rollouts: ``grpo-val-000005``.

    If an experiment's name is not valid in a run id, its valid parts are used, with a digest of the whole.
    """
    return f"{_make_legal(experiment)}-{split}-{step:06d}"


def is_rollout_run(name: str) -> bool:
    """Return whether a run has such a name."""
    return _ENDING.search(name) is not None


def _make_legal(experiment: str) -> str:
    """Return the experiment's name in a form that is valid in all these run ids."""
    if is_run_id(f"{experiment}{_LONGEST_SUFFIX}"):
        return experiment
    words = re.findall(r"[A-Za-z0-9]+", experiment)
    digest = hashlib.sha256(experiment.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{'-'.join(words)[:_NAME_LENGTH]}-{digest}".lstrip("-")


_LONGEST_SUFFIX: Final = f"-{TRAINING}-{10**9}"
_NAME_LENGTH, _DIGEST_LENGTH = 30, 8
"""Characters of such a name, and of its digest."""
_ENDING: Final = re.compile(rf"-({TRAINING}|{VALIDATION})-\d{{6,}}$")
