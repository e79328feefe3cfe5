"""The store of runs: a folder or a bucket, with one layout. No other package knows either.

Imported by the steps that read whole runs, the rooms above it, and ``workflows``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from swe_argo.steps.errors import ConfigError


def open_store(url: str, *, create: bool = False) -> Store:
    """Open the store at ``url``: a folder or ``s3://bucket/prefix``.

    With ``create`` it must be writable: a folder is made, a bucket must exist. Raises ConfigError if the address is
    invalid, the store is not usable or access is denied; InfraError if the server of the bucket does not answer.
    """
    scheme, separator, location = url.partition("://")
    if not separator and not url.startswith(("s3:", "s3//")):  # a mistyped s3:// address is not a folder
        from swe_argo.steps.store.folder import FolderStore

        return FolderStore(url, create=create)
    if scheme != "s3":
        raise ConfigError(f"{url!r} is neither a folder nor s3://bucket/prefix", field="store")
    from swe_argo.steps.store.s3 import S3Store

    bucket, _, prefix = location.partition("/")
    return S3Store(bucket, prefix.strip("/"), create=create)


class Store(Protocol):
    """Bytes under keys such as ``runs/r/units/i/1/grade.json``.

    Methods raise InfraError (class storage) when the store fails, ConfigError when access is denied.
    """

    url: str
    """The address as the user writes it."""

    def get(self, key: str) -> bytes:
        """Return the bytes under a key. Raises FileNotFoundError."""

    def put(self, key: str, data: bytes) -> None:
        """Write atomically: a reader sees the old bytes or the new ones."""

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Write ``new`` if the key holds ``old`` (None: does not exist); else return False and write nothing.

        If ``has_atomic_swap`` is true, only one of several concurrent calls succeeds.
        """

    def has_atomic_swap(self, key: str, data: bytes) -> bool:
        """Return whether ``swap`` is atomic here. It may be tested by writes to ``key``, which must hold ``data``.

        Only the process that writes this key may call it: a store that ignores conditions writes ``data`` there again.
        """

    def keys(self, prefix: str) -> list[str]:
        """Return all keys below a prefix that ends at a ``/``, sorted."""

    def folders(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix that ends at a ``/``, sorted."""

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the bytes of those keys that exist."""

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """Write each key atomically."""

    def copy_many(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Copy source to destination without the bytes passing through here; a missing source is left out."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove those keys that exist."""

    def locate(self, key: str) -> str:
        """Return the address of a key for a person: a path or an s3:// address."""
