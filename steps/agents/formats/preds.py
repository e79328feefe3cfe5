"""Predictions as swebench reads them (``all_preds.jsonl``), and as mini-swe-agent keeps them (``preds.json``)."""

from __future__ import annotations

import json

from steps.agents.formats.recorded import Row


def prediction(instance_id: str, model: str, patch: str) -> Row:
    """One. Bytes of the patch that are no UTF-8 are lone surrogates (PEP 383), as this project reads them again."""
    return {"model_name_or_path": model, "instance_id": instance_id, "model_patch": patch}


def line(instance_id: str, model: str, patch: str) -> bytes:
    """One line of ``all_preds.jsonl``, ASCII only."""
    return (json.dumps(prediction(instance_id, model, patch)) + "\n").encode()


def keyed(predictions: dict[str, Row]) -> bytes:
    """``preds.json``: by instance id."""
    return json.dumps(predictions, indent=2).encode()
