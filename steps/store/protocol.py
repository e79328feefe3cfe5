"""What a store is: bytes under keys, in many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class Store(Protocol):
    """Bytes under keys such as ``runs/r/units/i/1/grade.json``.

    Methods raise InfraError (class storage) when the store fails, ConfigError when access is denied.
    """

    url: str
    """As a person writes it."""

    def get(self, key: str) -> bytes:
        """The bytes under a key. Raises FileNotFoundError."""

    def put(self, key: str, data: bytes) -> None:
        """Write atomically: a reader sees the old bytes or the new ones."""

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Write ``new`` where ``old`` is what lies there, None for nothing; False, and nothing done, where it is not.

        Of several that try it at a time one succeeds, where ``has_atomic_swap`` is true.
        """

    def has_atomic_swap(self, key: str, data: bytes) -> bool:
        """Return whether ``swap`` keeps concurrent writers apart. Tries it at a key that holds ``data``.

        Only its one writer may ask this of a key: a store without conditional writes writes ``data`` there again.
        """

    def keys(self, prefix: str) -> list[str]:
        """All keys below a prefix that ends at a ``/``, sorted."""

    def folders(self, prefix: str) -> list[str]:
        """Names directly below a prefix that ends at a ``/``, sorted."""

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The bytes of those keys that exist."""

    def put_many(self, items: Mapping[str, bytes]) -> None:
        """Write each atomically."""

    def copy_many(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Copy source to destination without the bytes passing through here; a missing source is left out."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove those keys that exist."""

    def locate(self, key: str) -> str:
        """Where a person finds a key: a path or an s3:// address."""
