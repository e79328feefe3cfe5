"""Predictions in the form of swebench (``all_preds.jsonl``) and of mini-swe-agent (``preds.json``)."""

from __future__ import annotations

import json

from swe_argo.steps.agents.formats.recording import ParsedTrajectory, Row, as_name
from swe_argo.steps.agents.tools import APPLY
from swe_argo.steps.contracts.recording import Action

NAME = "predictions"


def is_row(row: Row) -> bool:
    """Return whether the row looks like a prediction."""
    return "model_patch" in row


def read(row: Row) -> ParsedTrajectory:
    """Read a prediction; its replay applies the patch, if not empty. Raises ValueError if the patch is no text."""
    patch = "" if row["model_patch"] is None else row["model_patch"]
    if not isinstance(patch, str):
        raise ValueError(f"model_patch is {type(patch).__name__}, not text or null")  # noqa: TRY004 - of a file
    actions = [Action(tool=APPLY, arguments={"patch": patch})] if patch.strip() else []
    model = as_name(row.get("model_name_or_path"))
    return ParsedTrajectory(NAME, as_name(row.get("instance_id")) or "", model, actions=actions, patch=patch)


def to_prediction(instance_id: str, model: str, patch: str) -> Row:
    """Return a prediction row. Patch bytes that are not UTF-8 are lone surrogates (PEP 383), as our reader expects."""
    return {"model_name_or_path": model, "instance_id": instance_id, "model_patch": patch}


def prediction_line(instance_id: str, model: str, patch: str) -> bytes:
    """Return a line of ``all_preds.jsonl``, ASCII only."""
    return (json.dumps(to_prediction(instance_id, model, patch)) + "\n").encode()


def keyed_predictions(predictions: dict[str, Row]) -> bytes:
    """Return ``preds.json``, predictions by instance id."""
    return json.dumps(predictions, indent=2).encode()
