"""Images of the mini instances for backend local, as folders."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.datasets.mini.forms import digest, materialise
from swe_argo.steps.datasets.names import MINI
from swe_argo.steps.errors import ConfigError, InfraError

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)


def prepare(images: Path, image_by_id: dict[str, str], dataset: str = MINI) -> None:
    """Create ``<images>/<image, / as __>/{testbed,digest}`` for each instance without a current ``digest``.

    Atomic, also with concurrent processes. Raises ConfigError for an unknown instance or a folder that is not writable,
    InfraError for other errors.
    """
    for instance_id, image in image_by_id.items():
        current = digest(instance_id, dataset)
        target = images / image.replace("/", "__")
        try:
            if _digest_of(target) != current:
                _make(instance_id, dataset, target, current)
        except OSError as error:
            if error.errno in UNWRITABLE:
                raise ConfigError(
                    f"cannot use {images}: {error.strerror}; set SWE_ARGO_HOME (or --local-images) to a writable "
                    "folder",
                    field="home",
                ) from error
            raise InfraError(FailureClass.STORAGE, f"cannot write the image folder {target}: {error}") from error


def _make(instance_id: str, dataset: str, target: Path, current: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as scratch:
        new = Path(scratch) / "new"
        materialise(instance_id, new, dataset)
        (new / "digest").write_text(f"{current}\n", encoding="ascii")
        _install(new, target, Path(scratch))


def _install(new: Path, target: Path, scratch: Path) -> None:
    """Move ``new`` to ``target``, unless another process has installed an equal folder."""
    with _locked(target.parent):
        if _digest_of(target) == _digest_of(new):
            return
        if target.exists():
            target.rename(scratch / "old")
        new.rename(target)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _digest_of(folder: Path) -> str | None:
    try:
        return (folder / "digest").read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
