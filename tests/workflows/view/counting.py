"""A store that counts what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from swe_argo.steps.store import Store


class CountingStore:
    """Another store, and the keys that were read and the prefixes that were listed."""

    def __init__(self, store: Store) -> None:
        self.url, self._store = store.url, store
        self.read: list[str] = []
        self.listed: list[str] = []

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return self._store.get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        names = list(keys)
        self.read += names
        return self._store.get_many(names)

    def keys(self, prefix: str) -> list[str]:
        self.listed.append(prefix)
        return self._store.keys(prefix)

    def folders(self, prefix: str) -> list[str]:
        self.listed.append(prefix)
        return self._store.folders(prefix)

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        return self._store.swap(key, old, new)

    def has_atomic_swap(self, key: str, data: bytes) -> bool:
        return self._store.has_atomic_swap(key, data)

    def put_many(self, items: Mapping[str, bytes]) -> None:
        self._store.put_many(items)

    def copy_many(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._store.copy_many(pairs)

    def delete_many(self, keys: Iterable[str]) -> None:
        self._store.delete_many(keys)

    def locate(self, key: str) -> str:
        return self._store.locate(key)
