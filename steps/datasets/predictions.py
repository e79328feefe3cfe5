"""Predictions: patches made elsewhere, in the files that swebench and agents of other projects write."""

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
"""Words in the keys under which other tools store a patch."""


@dataclass(frozen=True)
class Predictions:
    """``patches``: instance id -> patch text, None or ``""`` if the agent gave none (both are data).

    Bytes of a patch that are not UTF-8 are lone surrogates in the text (PEP 383); ``Patch.from_text`` restores them.
    """

    model: str
    patches: dict[str, str | None]
    notices: list[str]


def read(
    path: str | Path, known_ids: Collection[str], dataset_ids: Collection[str], model: str | None = None
) -> Predictions:
    """Return the predictions of the selected instances (``known_ids``) among those of the dataset (``dataset_ids``).

    A .jsonl file has one object per line; a .json file is a list or an object keyed by instance id. The last prediction
    of an instance counts, and the first row names the model, as in swebench. An output.jsonl of OpenHands is read as by
    its eval_infer, except that rows that failed through no fault of the agent are no predictions; the same holds for a
    .traj of SWE-agent. A folder is read for .traj files, and for the .pred of an instance without one. ``model`` is the
    model of rows that name none. Raises ConfigError, also for a row without a patch key and for a file in which every
    patch is null.
    """
    path = local_path(str(path), _FIELD)
    is_trajectory = path.is_dir() or path.suffix in (sweagent.SUFFIX, sweagent.PREDICTION_SUFFIX)
    rows, failed = _trajectories(path) if is_trajectory else (_rows(path), [])
    if not rows:
        raise ConfigError(f"{path} holds no predictions", field=_FIELD)
    theirs = [openhands.is_kept(row) for _, row in rows]
    if any(theirs) and not all(theirs):
        raise ConfigError(f"{path.name} holds predictions and rows of OpenHands at once", field=_FIELD)
    model, patches, ids, notices = _openhands(path.name, rows) if theirs[0] else _swebench(path.name, rows, model)
    _refuse_unknown(ids, dataset_ids, path)
    # A trajectory without a patch shows how its agent ended; a null in a file of predictions is mostly a lost key.
    if patches and not is_trajectory and not any(patch is not None for patch in patches.values()):
        raise ConfigError(f"{path.name} has no patch: all {len(patches)} are null", field=_FIELD)
    if failed:
        notices.append(
            f"{len(failed)} trajectories in {path.name} ended in an error of the infrastructure: they count as not "
            f"predicted, not as unresolved: {list_first(failed)}"
        )

    selected_ids = set(known_ids)
    selected = {each: patch for each, patch in patches.items() if each in selected_ids}
    if not selected_ids & set(ids):
        raise ConfigError(f"{path.name} has no prediction for any selected instance", field=_FIELD)
    if unselected := [each for each in patches if each not in selected]:
        notices.append(
            f"{len(unselected)} predictions of instances that are not selected are ignored: {list_first(unselected)}"
        )
    empty = [each for each, patch in selected.items() if not patch]
    if empty and 2 * len(empty) >= len(selected):
        notices.append(
            f"{len(empty)} of {len(selected)} patches in {path.name} are empty and count as unresolved: "
            f"{list_first(empty)}"
        )
    return Predictions(model, selected, notices)


_Read = tuple[str, dict[str, str | None], list[str], list[str]]
"""The model, the patches, every id that occurs, and notices."""


def _swebench(name: str, rows: list[tuple[str, dict[str, Any]]], model: str | None) -> _Read:
    ids = [_key(where, row, "instance_id") for where, row in rows]
    patches = dict(zip(ids, (_patch(where, row) for where, row in rows), strict=True))
    models = [_model(where, row, model) for where, row in rows]
    notices = []
    if twice := sorted(each for each, times in Counter(ids).items() if times > 1):
        notices.append(f"{name} has several predictions of {list_first(twice)}: the last of each counts")
    if not model and (others := sorted(set(models) - {models[0]})):
        notices.append(f"{name} names several models: the first, {models[0]}, counts, not {list_first(others)}")
    return models[0], patches, list(patches), notices


def _openhands(name: str, rows: list[tuple[str, dict[str, Any]]]) -> _Read:
    ids = [_key(where, row, "instance_id") for where, row in rows]
    read = openhands.choose_patches(row for _, row in rows)
    models = list(read.models) or ["OpenHands"]
    notices = []
    if read.several:
        notices.append(
            f"{name} has several attempts at {list_first(read.several)}: of each the best counts, one that finished "
            "with a patch before one without an error"
        )
    if read.failed:
        notices.append(
            f"{name} has nothing but errors of the infrastructure for {len(read.failed)} instances: they count as not "
            f"predicted, not as unresolved: {list_first(read.failed)}"
        )
    if read.changed:
        notices.append(
            f"of {len(read.changed)} patches in {name} hunks of {', '.join(openhands.SET_UP)}, or words before the "
            f"diff, are left out, as OpenHands' own evaluation does: {list_first(read.changed)}"
        )
    if models[1:]:
        notices.append(f"{name} names several models: the first, {models[0]}, counts, not {list_first(models[1:])}")
    return models[0], dict(read.patches), list(dict.fromkeys(ids)), notices


def _trajectories(path: Path) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """Return predictions of SWE-agent's files, and the instances that failed through no fault of the agent."""
    rows, failed = [], []
    for file in _sweagent_files(path) if path.is_dir() else [path]:
        row = read_json(file, _FIELD)
        if file.suffix == sweagent.PREDICTION_SUFFIX:
            rows += [(where, _small(where, value)) for where, value in _keyed_or_listed(file.name, row)]
            continue
        if not isinstance(row, dict) or not sweagent.is_row(row):
            raise ConfigError(f"{file} is no trajectory of SWE-agent", field=_FIELD)
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
    """Return a trajectory for each instance, or its prediction if there is no trajectory: that has no stop reason."""
    files = {file.with_suffix(""): file for file in sorted(folder.rglob(f"*{sweagent.PREDICTION_SUFFIX}"))}
    files |= {file.with_suffix(""): file for file in sorted(folder.rglob(f"*{sweagent.SUFFIX}"))}
    return [files[stem] for stem in sorted(files)]


def _rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    if str(path) == "gold":
        raise ConfigError("'gold' is no file: --agent gold grades the reference patches", field=_FIELD)
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        lines = read_lines(path, _FIELD)
    elif suffix == ".json":
        lines = iter(_keyed_or_listed(path.name, read_json(path, _FIELD)))
    else:
        raise ConfigError(f"{path} is neither .json nor .jsonl, nor a .traj or .pred of SWE-agent", field=_FIELD)
    return [(where, _small(where, row)) for where, row in lines]


def _small(where: str, row: Any) -> dict[str, Any]:
    """Return the row without irrelevant parts: those of OpenHands hold whole conversations."""
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: not an object with instance_id and model_patch", field=_FIELD)
    if not openhands.is_row(row):
        return row
    try:
        return openhands.strip_row(row)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}", field=_FIELD) from error


def _keyed_or_listed(name: str, value: Any) -> list[SourcedValue]:
    if isinstance(value, list):
        return [SourcedValue(f"{name}, row {number}", row) for number, row in enumerate(value, 1)]
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: neither a list of predictions nor an object keyed by instance id", field=_FIELD)
    if "instance_id" in value:  # one prediction, not a file of them
        return [SourcedValue(f"{name}, row 1", value)]
    return [SourcedValue(f"{name}, key {key!r}", _with_id(name, key, row)) for key, row in value.items()]


def _with_id(name: str, key: str, row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    if row.get("instance_id", key) != key:
        raise ConfigError(f"{name}, key {key!r}: instance_id is {row['instance_id']!r}", field=_FIELD)
    return {**row, "instance_id": key}


def _key(where: str, row: dict[str, Any], key: str) -> str:
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
    return _key(where, row, "model_name_or_path")


def _patch(where: str, row: dict[str, Any]) -> str | None:
    if "model_patch" not in row:
        likely = _likely_key(row)
        advice = f": rename {likely}, which seems to hold the patch" if likely else ""
        raise ConfigError(f"{where}: model_patch is missing{advice}", field=_FIELD)
    value = row["model_patch"]
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}: model_patch is {type(value).__name__}, not text or null", field=_FIELD)
    return value


def _likely_key(row: dict[str, Any]) -> str | None:
    """Return the key that seems to hold the patch: by its name, preferably one with a diff."""
    texts = {key: value or "" for key, value in row.items() if value is None or isinstance(value, str)}
    names = [key for key in texts if _OTHER_KEYS.search(key) and "test" not in key.lower()]
    diffs = [key for key, text in texts.items() if re.search(r"^(?:diff --git |--- )", text, re.MULTILINE)]
    return next((key for key in names if key in diffs), None) or next(iter(names or diffs), None)


def _refuse_unknown(ids: Collection[str], dataset_ids: Collection[str], path: Path) -> None:
    there = set(dataset_ids)
    unknown = [each for each in ids if each not in there]
    if unknown:
        hint = did_you_mean(unknown[0], sorted(there)) if len(unknown) == 1 else ""
        raise ConfigError(
            f"{path.name} has predictions of {len(unknown)} ids outside the dataset: {', '.join(unknown)}{hint}",
            field=_FIELD,
        )
