"""Names that travel: which strings may stand in keys, paths and labels, and the tokens made from them."""

from __future__ import annotations

import re

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
RUN_ID_RULE = "letters, digits, '.', '_' and '-', at most 63, starting and ending with a letter or digit"
_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def is_safe_id(text: str) -> bool:
    """Whether an instance id can be a folder name, an S3 key part and a file name everywhere."""
    return _SAFE.fullmatch(text) is not None and ".." not in text


def is_run_id(text: str) -> bool:
    """Whether a run id is also a legal Kubernetes label value (63 characters) and a folder name."""
    return _RUN_ID.fullmatch(text) is not None and ".." not in text


def model_token(model: str) -> str:
    """The model's name as the harness writes it in file names: ``/`` becomes ``__`` (swebench reporting.py)."""
    return model.replace("/", "__")
