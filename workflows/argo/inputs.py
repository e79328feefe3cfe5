"""Local input files of a spec, uploaded to the bucket for the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import file_fields, replace_values
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.submitted_spec import is_name

if TYPE_CHECKING:
    from swe_argo.workflows.argo.bucket import Bucket

_TASK_PARTS = {"environment", "tests", "solution"}
"""Folders of a task in Harbor's format; all files in them belong to the task."""
_CONCURRENCY = 16


@dataclass(frozen=True)
class Input:
    """A file or folder to upload. ``files`` maps names within it to paths."""

    field: str
    path: Path
    files: dict[str, Path]
    digest: str

    @property
    def key(self) -> str:
        """The upload key. It depends on the content, so that a resumed run has the same spec."""
        return f"inputs/{self.digest[:16]}/{self.path.resolve().name}"


def find_inputs(spec: RunSpec) -> list[Input]:
    """Return the local files and folders that the spec names. Raises ConfigError if one is missing or unreadable."""
    input_files = []
    for field in file_fields():
        value = field.of(spec)
        if not value or "://" in value or is_name(field.name, value):
            continue
        path = Path(value).expanduser()
        if not path.exists():
            raise ConfigError(f"there is no file {value}", field=field.name)
        input_files.append(_input(field.name, path))
    return input_files


def in_bucket(spec: RunSpec, input_files: list[Input], store: str) -> RunSpec:
    """Return the spec with the local paths replaced by their addresses in the store."""
    return replace_values(spec, {input_file.field: f"{store}/{input_file.key}" for input_file in input_files})


def upload(input_files: list[Input], bucket: Bucket, report: Callable[[str], None]) -> None:
    """Upload the files that the bucket lacks, each after a line to ``report``.

    Raises ConfigError, InfraError if it fails.
    """
    for input_file in input_files:
        objects = bucket.list_objects(f"{input_file.key.rpartition('/')[0]}/")
        paths_by_key = {
            f"{input_file.key}/{name}" if name else input_file.key: path for name, path in input_file.files.items()
        }
        missing = [
            (path, key) for key, path in paths_by_key.items() if key not in objects or not objects[key].is_same(path)
        ]
        if not missing:
            continue
        report(f"uploading {input_file.field}: {input_file.path}")
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            list(pool.map(lambda pair: bucket.upload(*pair), missing))


def _input(field: str, path: Path) -> Input:
    """Return the input with the digest of its names and contents. Raises ConfigError if it is empty or unreadable."""
    files = {"": path} if path.is_file() else _list_files(path)
    if not files:
        raise ConfigError(f"{path} is an empty folder", field=field)
    digest = hashlib.sha256()
    try:
        for name, file in sorted(files.items()):
            digest.update(f"{name}\0{_sha256(file)}\n".encode())
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}", field=field) from error
    return Input(field, path, files, digest.hexdigest())


def _list_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder except ignored ones: .git, and hidden files outside the parts of a task."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path for name, path in names.items() if not _is_hidden(name.split("/"))}


def _is_hidden(parts: list[str]) -> bool:
    """Return whether a file is ignored, from the parts of its path. Hidden files in a task's folders are not."""
    task_start = next((number for number, part in enumerate(parts) if part in _TASK_PARTS), len(parts))
    return ".git" in parts or any(part.startswith(".") for part in parts[:task_start])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
