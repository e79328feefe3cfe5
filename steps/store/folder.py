"""A store in a folder."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError


class FolderStore:
    """A store whose keys are paths below one folder. Writes are renames, so several processes may share it."""

    def __init__(self, url: str, *, create: bool) -> None:
        self.url = url
        self._root = Path(url).expanduser()
        if self._root.exists() and not self._root.is_dir():
            raise ConfigError(f"{url} is a file, not a folder", field="store")
        if create:
            try:
                self._root.mkdir(parents=True, exist_ok=True)
                probe = self._root / f".writable-{uuid.uuid4().hex}"
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise ConfigError(f"cannot write to {url}: {error.strerror}", field="store") from error

        self._existed = self._root.is_dir()

    def _check_exists(self) -> None:
        """Raise InfraError if the store is gone: finding nothing in it, or recreating it, would hide that."""
        if self._existed and not self._root.is_dir():
            raise InfraError(FailureClass.STORAGE, f"the store {self.url} is gone")

    def get(self, key: str) -> bytes:
        """Return the bytes under a key. Raises FileNotFoundError."""
        try:
            with _failures():
                return (self._root / key).read_bytes()
        except FileNotFoundError:
            self._check_exists()
            raise

    def put(self, key: str, data: bytes) -> None:
        """Write a temporary file in the key's folder, then rename it to the key."""
        path = self._root / key
        self._check_exists()
        with _failures():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
            try:
                part.write_bytes(data)
                part.replace(path)
            except OSError:
                part.unlink(missing_ok=True)
                raise

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Compare and write while the store's folder is locked, if it can be; see ``Store.swap``."""
        self._check_exists()
        with _failures(), self._locked():
            try:
                current = self.get(key)
            except FileNotFoundError:
                current = None
            if current != old:
                return False
            self.put(key, new)
            return True

    def has_atomic_swap(self, key: str, data: bytes) -> bool:  # noqa: ARG002
        """Return whether the file system can lock the store's folder. Writes nothing; ignores ``key`` and ``data``."""
        with _failures(), self._locked() as is_locked:
            return is_locked

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Lock the store's folder if the system and its file system can; yield whether they did."""
        try:
            import fcntl
        except ImportError:
            yield False
            return
        folder, is_locked = os.open(self._root, os.O_RDONLY), False
        try:
            with suppress(OSError):  # a network file system that cannot lock folders
                fcntl.flock(folder, fcntl.LOCK_EX)
                is_locked = True
            yield is_locked
        finally:
            os.close(folder)

    def keys(self, prefix: str) -> list[str]:
        """Return all keys below a prefix, without unfinished writes."""
        self._check_exists()
        keys: list[str] = []
        for folder, _, files in os.walk(self._root / prefix):
            relative = os.path.relpath(folder, self._root)
            keys += [f"{relative}/{name}" for name in files if not name.startswith(".")]
        return sorted(keys)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly below a prefix."""
        try:
            with _failures():
                return sorted(entry.name for entry in os.scandir(self._root / prefix) if entry.is_dir())
        except FileNotFoundError:
            self._check_exists()
            return []

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the bytes of those keys that exist."""
        contents = {}
        for key in keys:
            try:
                contents[key] = self.get(key)
            except FileNotFoundError:
                continue
        return contents

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """Write each key atomically."""
        for key, data in items.items():
            self.put(key, data)

    def copy_many(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Hard-link each source to its destination if the file system can, else copy it; skip missing sources."""
        for source, destination in pairs:
            origin, target = self._root / source, self._root / destination
            if not origin.exists():
                continue
            with _failures():
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
                try:
                    os.link(origin, part)
                except OSError:
                    shutil.copyfile(origin, part)
                part.replace(target)
                part.unlink(missing_ok=True)  # renaming onto a link of the same file does nothing

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove those keys that exist, and the folders this leaves empty."""
        for key in keys:
            path = self._root / key
            with _failures():
                path.unlink(missing_ok=True)
            for parent in path.parents:
                if parent == self._root:
                    break
                try:
                    parent.rmdir()
                except OSError:  # it is not empty, or another process was first
                    break

    def locate(self, key: str) -> str:
        """Return the path of a key."""
        return str(self._root / key)


@contextmanager
def _failures() -> Iterator[None]:
    """Raise OSErrors of the block as the errors of ``Store``; a path through a file counts as not found."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(*error.args) from error
    except PermissionError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}", field="store") from error
    except OSError as error:
        raise InfraError(FailureClass.STORAGE, f"the store failed: {error}") from error
