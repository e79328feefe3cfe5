"""Files that a spec names in a bucket, downloaded for the time they are read."""

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
    """Yield the spec with local paths in place of every ``s3://bucket/key``: a file, or all files below a folder.

    Raises ConfigError if there is nothing at an address, InfraError if the bucket does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="swe-argo-files-") as folder:
        here = {}
        for place, field in enumerate(file_fields()):
            value = field.of(spec)
            if value and value.startswith("s3://"):
                here[field.name] = str(_bring(value, Path(folder, str(place)), field.name))
        yield replace_values(spec, here)


def _bring(url: str, folder: Path, field: str) -> Path:
    above, _, name = url.rstrip("/").rpartition("/")
    if above in ("s3:/", "s3:"):
        raise ConfigError(f"{url} names a bucket, not a file in one", field=field)
    store = open_store(above)
    inside = f"{name}/"
    names = [key for key in store.keys(inside) if not key.endswith("/")] or [name]
    contents = store.get_many(names)
    if not contents:
        raise ConfigError(f"there is nothing at {url}", field=field)
    for key, data in contents.items():
        path = folder / key
        if ".." in Path(key).parts:
            raise ConfigError(f"{url} holds a key with '..'", field=field)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / name
