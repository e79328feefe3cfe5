"""Temporary downloads of a spec's files in a bucket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import file_fields, replace_values
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import open_store


@contextmanager
def fetch_inputs(spec: RunSpec) -> Iterator[RunSpec]:
    """Yield the spec with local paths in place of every ``s3://bucket/key``, which is a file or a folder.

    The files are removed afterwards. Raises ConfigError for an address without files, InfraError if the bucket does not
    answer.
    """
    with tempfile.TemporaryDirectory(prefix="swe-argo-files-") as folder:
        local_paths = {}
        for place, field in enumerate(file_fields()):
            value = field.of(spec)
            if value and value.startswith("s3://"):
                local_paths[field.name] = str(_download(value, Path(folder, str(place)), field.name))
        yield replace_values(spec, local_paths)


def _download(url: str, folder: Path, field: str) -> Path:
    """Download the file at ``url``, or all files below it; return the local path.

    Raises ConfigError if there is none.
    """
    above, _, name = url.rstrip("/").rpartition("/")
    if above in ("s3:/", "s3:"):
        raise ConfigError(f"{url} names a bucket, not a file in one", field=field)
    store = open_store(above)
    inside = f"{name}/"
    names = [key for key in store.keys(inside) if not key.endswith("/")] or [name]
    contents = store.get_many(names)
    if not contents:
        raise ConfigError(f"{url} does not exist", field=field)
    for key, data in contents.items():
        path = folder / key
        if ".." in Path(key).parts:
            raise ConfigError(f"{url} contains a key with '..'", field=field)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / name
