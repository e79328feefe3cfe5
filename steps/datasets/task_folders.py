"""Harbor's datasets: folders of task folders, or registry entries with local repositories."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from swe_argo.steps.datasets.names import did_you_mean, list_first
from swe_argo.steps.datasets.records import SourcedValue, read_json
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.harbor.task_folder import find_tasks, read_task

PREFIX = "harbor:"
BUNDLED = "harbor:mini"
REGISTRY = "registry.json"
_FIELD = "dataset"


def is_task_folder(folder: Path) -> bool:
    """Return whether a folder is a task or contains tasks."""
    return bool(find_tasks(folder))


def read_task_folder(folder: Path) -> list[SourcedValue]:
    """Return a row for each task, by name. Raises ConfigError if a task cannot be read."""
    return [_read(task) for task in find_tasks(folder)]


def read_registry(name: str, registry: Path | None) -> list[SourcedValue]:
    """Return the tasks of ``harbor:<entry>`` or ``harbor:<entry>@<version>``, in the entry's order.

    ``registry``: a registry.json or its folder, None if it is not set. Tasks of other repositories are searched in
    folders beside it with the repositories' names. Raises ConfigError if the entry or a task is missing.
    """
    if registry is None:
        raise ConfigError(
            f"{name} is an entry of Harbor's registry: set SWE_ARGO_HARBOR_REGISTRY to a registry.json or its folder",
            field=_FIELD,
        )
    file = registry / REGISTRY if registry.is_dir() else registry
    entry = _entry(name, read_json(file, _FIELD), file)
    tasks = [_find(task, file.resolve().parent, name) for task in entry.get("tasks", [])]
    return [_read(folder) for folder in tasks]


def _entry(name: str, entries: Any, file: Path) -> dict[str, Any]:
    """Return the registry's entry of this name and version, else its newest. Raises ConfigError if there is none."""
    entry_name, at, version = name.removeprefix(PREFIX).partition("@")
    entries = entries.get("datasets", []) if isinstance(entries, dict) else entries
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "name" in entry for entry in entries):
        raise ConfigError(f"{file} is not a registry: expected a list of objects with a name", field=_FIELD)
    matches: list[dict[str, Any]] = [entry for entry in entries if entry["name"] == entry_name]
    if not matches:
        names = sorted({str(entry["name"]) for entry in entries})
        raise ConfigError(
            f"{file} has no entry {entry_name!r}{did_you_mean(entry_name, names)}; it has {list_first(names)}",
            field=_FIELD,
        )
    versions = [str(entry.get("version", "")) for entry in matches]
    if at:
        if version not in versions:
            raise ConfigError(f"{entry_name} has no version {version!r}; it has {', '.join(versions)}", field=_FIELD)
        return matches[versions.index(version)]
    # Harbor's rule: head, else the newest by its numbers.
    return matches[versions.index("head")] if "head" in versions else max(matches, key=_version_key)


def _version_key(entry: dict[str, Any]) -> list[tuple[int, int | str]]:
    """Return the sort key of a version: its parts as numbers, which come after parts that are not."""
    parts = str(entry.get("version", "")).split(".")
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in parts]


def _find(task: Any, root: Path, name: str) -> Path:
    """Return the local folder of a registry's task. Raises ConfigError, with the places searched, if there is none."""
    path = PurePosixPath(str(task.get("path", "") if isinstance(task, dict) else ""))
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"{name}: {json.dumps(task)[:200]} has no task path", field=_FIELD)
    url = str(task.get("git_url") or "")
    repository = url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    places: list[Path] = [
        root / path,
        *((root / repository / path, root.parent / repository / path) if repository else ()),
    ]
    for place in places:
        if (place / "task.toml").is_file():
            return place
    raise ConfigError(
        f"{name}: task {path} is in none of {', '.join(map(str, places))}"
        + (f": clone {url} there, at {task.get('git_commit_id') or 'its head'}" if url else ""),
        field=_FIELD,
    )


def _read(folder: Path) -> SourcedValue:
    """Return the row of a task. Raises ConfigError if its files cannot be read."""
    try:
        return SourcedValue(str(folder), read_task(folder))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{folder}: not UTF-8 text (byte {error.start + 1})", field=_FIELD) from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror or error}", field=_FIELD) from error
