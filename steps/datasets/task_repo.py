"""Rows from a swebench 5 task repo: ``sweb.yaml`` and a folder per instance (swebench/task/repo.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swe_argo.steps.datasets.records import SourcedValue, read_bytes, read_json
from swe_argo.steps.errors import ConfigError

CONFIG = "sweb.yaml"
DEPRECATED = "deprecated"
_FIELD = "dataset"
_FILES = {
    "patch": "gold.patch",
    "test_patch": "test.patch",
    "eval_script": "eval.sh",
    "problem_statement": "problem_statement.md",
}
_HINTS = "hints.md"


def is_task_repo(folder: Path) -> bool:
    """Return whether a folder is a task repo."""
    return (folder / CONFIG).is_file()


def read_task_repo(folder: Path, split: str) -> tuple[list[SourcedValue], list[SourcedValue]]:
    """Return the rows of ``split`` in order of their ids, and all other rows.

    Other rows run only if selected by id, as in swebench's load_instances (a ``deprecated`` instance can be repaired).
    Raises ConfigError for an unknown or unpublished split and for an incomplete task.
    """
    splits = _published_splits(folder)
    if split not in splits:
        if split == DEPRECATED:
            raise ConfigError(
                f"split {DEPRECATED!r} is never published: select its instances with --instance and another split, "
                f"of {', '.join(splits)}",
                field="split",
            )
        raise ConfigError(f"{folder} has no split {split!r}; it has {', '.join(splits)}", field="split")
    tasks = sorted(path.parent for path in (folder / "tasks").glob("*/task.yaml"))
    rows = [SourcedValue(f"tasks/{task.name}", _read_task(task)) for task in tasks]
    return (
        [row for row in rows if row.value.get("split") == split],
        [row for row in rows if row.value.get("split") != split],
    )


def _published_splits(folder: Path) -> list[str]:
    """Return the published splits in sweb.yaml. Raises ConfigError if the file is not that of a task repo."""
    config = _yaml(folder / CONFIG, CONFIG)
    splits = config.get("splits", ["test"])
    if not config.get("datasets"):
        raise ConfigError(f"{folder / CONFIG} does not name any datasets", field=_FIELD)
    if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
        raise ConfigError(f"{folder / CONFIG}: splits is not a list of names", field=_FIELD)
    return splits


def _read_task(folder: Path) -> dict[str, Any]:
    """Return the row of a task's folder. Raises ConfigError if a file is missing or malformed."""
    where = f"tasks/{folder.name}"
    row = _yaml(folder / "task.yaml", f"{where}/task.yaml")
    if row.get("instance_id") != folder.name:
        raise ConfigError(f"{where}/task.yaml: instance_id is {row.get('instance_id')!r}", field=_FIELD)
    row |= {column: _text(folder / name, f"{where}/{name}") for column, name in _FILES.items()}
    row["hints_text"] = _text(folder / _HINTS, f"{where}/{_HINTS}") if (folder / _HINTS).is_file() else ""
    tests = read_json(folder / "tests.json", _FIELD)
    if not isinstance(tests, dict):
        raise ConfigError(f"{where}/tests.json: not an object of test lists", field=_FIELD)
    return row | tests


def _text(path: Path, where: str) -> str:
    """Return the file's text, without newline translation."""
    try:
        return read_bytes(path, _FIELD).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not UTF-8 text (byte {error.start + 1})", field=_FIELD) from None


def _yaml(path: Path, where: str) -> dict[str, Any]:
    """Return the table in a YAML file. Raises ConfigError if it is none."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value = yaml.load(_text(path, where), Loader=loader)  # noqa: S506 - both loaders are safe ones
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML: {' '.join(str(error).split())}", field=_FIELD) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: not a table of keys", field=_FIELD)
    return value
