"""Predictions as recordings: their patches are what is done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.agents.replay.recordings import read
from swe_argo.steps.contracts.recording import Action
from swe_argo.steps.errors import ConfigError
from tests.steps.agents.replay.test_recordings import ID, write_rows


def prediction(patch: object = "diff \udce9\n", **more: Any) -> dict[str, Any]:
    return {"instance_id": ID, "model_name_or_path": "m/preds", "model_patch": patch} | more


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("all_preds.jsonl", [prediction()], ":1"),
        ("output.swebench.jsonl", [prediction(), prediction(instance_id="x__x-1")], ":1"),
        ("preds.json", [{ID: prediction()}], f":{ID}"),
        ("preds.json", [{ID: {"model_patch": "diff \udce9\n", "model_name_or_path": "m/preds"}}], f":{ID}"),
        (f"{ID}.pred", [prediction()], ""),
        ("preds.json", [json.dumps([prediction(), prediction("other")]).encode()], ":1"),
    ],
)
def test_prediction_is_read_as_recording(tmp_path: Path, name: str, content: list[Any], place: str) -> None:
    file = write_rows(tmp_path, name, *content)
    for path in (file, tmp_path) if name.startswith(("all_preds", "preds")) else (file,):
        recordings = read(str(path), [ID])
        recording = recordings.by_id[ID]
        assert recording.actions == [Action(tool="apply_diff", arguments={"patch": "diff \udce9\n"})]
        assert (recording.source, recording.scaffold) == (f"predictions {file}{place}", None)
        assert (recording.patch, recordings.model) == ("diff \udce9\n", "m/preds")


@pytest.mark.parametrize("patch", [None, "", " \n"])
def test_empty_prediction_has_no_actions(tmp_path: Path, patch: str | None) -> None:
    recording = read(str(write_rows(tmp_path, "preds.jsonl", prediction(patch))), [ID]).by_id[ID]
    assert (recording.actions, recording.patch) == ([], patch or "")


def test_error_names_non_text_prediction(tmp_path: Path) -> None:
    file = write_rows(tmp_path, "preds.jsonl", prediction(), prediction(3))
    with pytest.raises(ConfigError, match=r"preds\.jsonl:2 is malformed: model_patch is int, not text or null"):
        read(str(file), [ID])


def test_invalid_list_entry_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"preds\.json:2 is not a trajectory; .*predictions"):
        read(str(write_rows(tmp_path, "preds.json", json.dumps([prediction(), 3]).encode())), [ID])
