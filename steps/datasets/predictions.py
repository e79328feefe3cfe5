"""Predictions: patches from files of swebench and of other projects' agents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.datasets import openhands, sweagent
from swe_argo.steps.datasets.names import did_you_mean, list_first
from swe_argo.steps.datasets.records import SourcedValue, local_path, read_json, read_lines
from swe_argo.steps.errors import ConfigError

_FIELD = "agent.predictions"
_OTHER_KEYS = re.compile("patch|diff|predict|submi|output|answer|completion", re.IGNORECASE)
"""Words in other tools' keys for a patch."""


@dataclass(frozen=True)
class Predictions:
    """Patches by instance. ``patches``: instance id -> patch text; None or ``""`` for no patch (both are data).

    Bytes of a patch that are not UTF-8 are lone surrogates (PEP 383); ``Patch.from_text`` restores them.
    """

    model: str
    patches: dict[str, str | None]
    notices: list[str]


def read(
    path: str | Path, known_ids: Collection[str], dataset_ids: Collection[str], model: str | None = None
) -> Predictions:
    """Return the predictions of the selected instances (``known_ids``) among those of the dataset (``dataset_ids``).

    A .jsonl file has one object per line; a .json file is a list or an object keyed by instance id. The last prediction
    of an instance and the model of the first row count, as in swebench. An output.jsonl of OpenHands is read as in its
    eval_infer. Rows of OpenHands and SWE-agent with infrastructure failures are no predictions. A folder is searched
    for .traj files, and for the .pred of an instance without one. ``model``: for rows that name none. Raises
    ConfigError if a file is not readable, a row has no patch key, every patch is null, or no selected instance has a
    prediction.
    """
    path = local_path(str(path), _FIELD)
    is_trajectory = path.is_dir() or path.suffix in (sweagent.SUFFIX, sweagent.PREDICTION_SUFFIX)
    rows, failed = _trajectories(path) if is_trajectory else (_read_rows(path), [])
    if not rows:
        raise ConfigError(f"{path} contains no predictions", field=_FIELD)
    are_openhands = [openhands.is_stripped(row) for _, row in rows]
    if any(are_openhands) and not all(are_openhands):
        raise ConfigError(f"{path.name} mixes predictions and rows of OpenHands", field=_FIELD)
    model, patches, ids, notices = (
        _openhands(path.name, rows) if are_openhands[0] else _swebench(path.name, rows, model)
    )
    _refuse_unknown(ids, dataset_ids, path)
    # A trajectory without a patch still shows the agent's end; in a file of predictions, null mostly means a wrong key.
    if patches and not is_trajectory and not any(patch is not None for patch in patches.values()):
        raise ConfigError(f"{path.name} has no patch: all {len(patches)} are null", field=_FIELD)
    if failed:
        notices.append(
            f"{len(failed)} trajectories in {path.name} ended in an infrastructure failure and count as missing "
            f"predictions, not as unresolved: {list_first(failed)}"
        )

    selected_ids = set(known_ids)
    selected = {id_: patch for id_, patch in patches.items() if id_ in selected_ids}
    if not selected_ids & set(ids):
        raise ConfigError(f"{path.name} has no prediction for any selected instance", field=_FIELD)
    if unselected := [id_ for id_ in patches if id_ not in selected]:
        notices.append(
            f"{len(unselected)} predictions for instances that are not selected are ignored: {list_first(unselected)}"
        )
    empty = [id_ for id_, patch in selected.items() if not patch]
    if empty and 2 * len(empty) >= len(selected):
        notices.append(
            f"{len(empty)} of {len(selected)} patches in {path.name} are empty and count as unresolved: "
            f"{list_first(empty)}"
        )
    return Predictions(model, selected, notices)


_Read = tuple[str, dict[str, str | None], list[str], list[str]]
"""The model, the patches, all ids, and notices."""


def _swebench(name: str, rows: list[tuple[str, dict[str, Any]]], model: str | None) -> _Read:
    """Read rows in swebench's format; ``name``: the file, for messages; ``model``: for rows that name none."""
    ids = [_required_text(where, row, "instance_id") for where, row in rows]
    patches = dict(zip(ids, (_patch(where, row) for where, row in rows), strict=True))
    models = [_model(where, row, model) for where, row in rows]
    notices = []
    if twice := sorted(id_ for id_, count in Counter(ids).items() if count > 1):
        notices.append(f"{name} has several predictions for {list_first(twice)}; the last one counts")
    if not model and (further := sorted(set(models) - {models[0]})):
        notices.append(f"{name} names several models; the run uses the first, {models[0]}, not {list_first(further)}")
    return models[0], patches, list(patches), notices


def _openhands(name: str, rows: list[tuple[str, dict[str, Any]]]) -> _Read:
    """Read rows in OpenHands' format: of several attempts at an instance the best one counts."""
    ids = [_required_text(where, row, "instance_id") for where, row in rows]
    read = openhands.choose_patches(row for _, row in rows)
    models = list(read.models) or ["OpenHands"]
    notices = []
    if read.repeated:
        notices.append(
            f"{name} has several attempts at {list_first(read.repeated)}; the best one counts: finished with a patch, "
            "else without an error"
        )
    if read.failed:
        notices.append(
            f"{name} has only infrastructure failures for {len(read.failed)} instances, which count as missing "
            f"predictions, not as unresolved: {list_first(read.failed)}"
        )
    if read.changed:
        notices.append(
            f"hunks of {', '.join(openhands.SET_UP)}, or text before the diff, are dropped from {len(read.changed)} "
            f"patches in {name}, as in OpenHands' own evaluation: {list_first(read.changed)}"
        )
    if models[1:]:
        notices.append(
            f"{name} names several models; the run uses the first, {models[0]}, not {list_first(models[1:])}"
        )
    return models[0], dict(read.patches), list(dict.fromkeys(ids)), notices


def _trajectories(path: Path) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """Return predictions of SWE-agent's files, and the instances with infrastructure failures."""
    rows, failed = [], []
    for file in _sweagent_files(path) if path.is_dir() else [path]:
        row = read_json(file, _FIELD)
        if file.suffix == sweagent.PREDICTION_SUFFIX:
            rows += [(where, _strip_row(where, value)) for where, value in _keyed_or_listed(file.name, row)]
            continue
        if not isinstance(row, dict) or not sweagent.is_row(row):
            raise ConfigError(f"{file} is not a trajectory of SWE-agent", field=_FIELD)
        row, instance_id = sweagent.chosen_attempt(row), file.name.removesuffix(sweagent.SUFFIX)
        if not sweagent.read_end(row)[0]:
            failed.append(instance_id)
            continue
        try:
            patch = sweagent.submitted_patch(row)
        except ValueError as error:
            raise ConfigError(f"{file}: {error}", field=_FIELD) from error
        model = sweagent.model_name(row) or "SWE-agent"
        rows.append((file.name, {"instance_id": instance_id, "model_name_or_path": model, "model_patch": patch}))
    return rows, failed


def _sweagent_files(folder: Path) -> list[Path]:
    """Return each instance's trajectory, or its prediction, which has no stop reason, if there is no trajectory."""
    files = {file.with_suffix(""): file for file in sorted(folder.rglob(f"*{sweagent.PREDICTION_SUFFIX}"))}
    files |= {file.with_suffix(""): file for file in sorted(folder.rglob(f"*{sweagent.SUFFIX}"))}
    return [files[path] for path in sorted(files)]


def _read_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a file and their places, without irrelevant parts. Raises ConfigError if it is unreadable."""
    if str(path) == "gold":
        raise ConfigError("'gold' is not a file: --agent gold grades the reference patches", field=_FIELD)
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        lines = read_lines(path, _FIELD)
    elif suffix == ".json":
        lines = iter(_keyed_or_listed(path.name, read_json(path, _FIELD)))
    else:
        raise ConfigError(f"{path} is neither .json nor .jsonl, nor a .traj or .pred of SWE-agent", field=_FIELD)
    return [(where, _strip_row(where, row)) for where, row in lines]


def _strip_row(where: str, row: Any) -> dict[str, Any]:
    """Return the row without irrelevant parts, such as OpenHands' conversations."""
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: not an object with instance_id and model_patch", field=_FIELD)
    if not openhands.is_row(row):
        return row
    try:
        return openhands.strip_row(row)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}", field=_FIELD) from error


def _keyed_or_listed(name: str, value: Any) -> list[SourcedValue]:
    """Return the predictions of a .json file: a list, an object keyed by instance id, or a single prediction."""
    if isinstance(value, list):
        return [SourcedValue(f"{name}, row {number}", row) for number, row in enumerate(value, 1)]
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: neither a list of predictions nor an object keyed by instance id", field=_FIELD)
    if "instance_id" in value:  # one prediction, not a file of them
        return [SourcedValue(f"{name}, row 1", value)]
    return [SourcedValue(f"{name}, key {key!r}", _with_id(name, key, row)) for key, row in value.items()]


def _with_id(name: str, key: str, row: Any) -> Any:
    """Return the row with its key as the id. Raises ConfigError if it names another id."""
    if not isinstance(row, dict):
        return row
    if row.get("instance_id", key) != key:
        raise ConfigError(f"{name}, key {key!r}: instance_id is {row['instance_id']!r}", field=_FIELD)
    return {**row, "instance_id": key}


def _required_text(where: str, row: dict[str, Any], key: str) -> str:
    """Return the text under ``key``. Raises ConfigError if it is missing or blank."""
    value = row.get(key)
    if value is None:
        raise ConfigError(f"{where}: {key} is missing", field=_FIELD)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: {key} is {value!r}, not a name", field=_FIELD)
    return value


def _model(where: str, row: dict[str, Any], default: str | None) -> str:
    """Return the model that a row names, else ``default``."""
    if row.get("model_name_or_path") in (None, ""):
        if default:
            return default
        raise ConfigError(f"{where}: model_name_or_path is missing: name the model with --model", field=_FIELD)
    return _required_text(where, row, "model_name_or_path")


def _patch(where: str, row: dict[str, Any]) -> str | None:
    """Return the patch of a row; None if the row says that there is none. Raises ConfigError without the key."""
    if "model_patch" not in row:
        likely = _likely_key(row)
        advice = f": rename {likely}, which seems to contain the patch" if likely else ""
        raise ConfigError(f"{where}: model_patch is missing{advice}", field=_FIELD)
    value = row["model_patch"]
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}: model_patch is {type(value).__name__}, not text or null", field=_FIELD)
    return value


def _likely_key(row: dict[str, Any]) -> str | None:
    """Return the key that seems to contain the patch, by its name, preferably with a diff."""
    texts = {key: value or "" for key, value in row.items() if value is None or isinstance(value, str)}
    names = [key for key in texts if _OTHER_KEYS.search(key) and "test" not in key.lower()]
    diffs = [key for key, text in texts.items() if re.search(r"^(?:diff --git |--- )", text, re.MULTILINE)]
    return next((key for key in names if key in diffs), None) or next(iter(names or diffs), None)


def _refuse_unknown(ids: Collection[str], dataset_ids: Collection[str], path: Path) -> None:
    """Raise ConfigError if a prediction is for an instance that the dataset does not have."""
    valid_ids = set(dataset_ids)
    unknown = [id_ for id_ in ids if id_ not in valid_ids]
    if unknown:
        hint = did_you_mean(unknown[0], sorted(valid_ids)) if len(unknown) == 1 else ""
        raise ConfigError(
            f"{path.name} has predictions for {len(unknown)} instances that the dataset does not have: "
            f"{', '.join(unknown)}{hint}",
            field=_FIELD,
        )
