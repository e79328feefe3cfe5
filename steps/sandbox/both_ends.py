"""A buffer that keeps the beginning and the end of a long output."""

from __future__ import annotations


class HeadTailBuffer:
    """A buffer of bytes; if it exceeds twice ``end_bytes``, only the first and the last ``end_bytes`` stay."""

    def __init__(self, end_bytes: int) -> None:
        self._end_bytes = end_bytes
        self._data = bytearray()
        self._cut = False

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes | bytearray) -> None:
        """Append the next bytes."""
        self._data += data
        if len(self._data) > 4 * self._end_bytes:  # not at twice: each trim moves bytes
            self._trim()

    def skip(self) -> None:
        """Record that bytes are missing before the next ones; of those so far only the beginning stays."""
        del self._data[self._end_bytes :]
        self._cut = True

    def cut_at(self, mark: bytes) -> bool:
        """Drop ``mark`` and everything after it from the buffer; return whether it was present."""
        at = self._data.find(mark)
        if at >= 0:
            del self._data[at:]
        return at >= 0

    def take(self) -> tuple[bytes, bytes | None]:
        """Empty the buffer; return (beginning, end), or (everything, None) if nothing was dropped."""
        if len(self._data) > 2 * self._end_bytes:
            self._trim()
        data, cut = bytes(self._data), self._cut
        self._data.clear()
        self._cut = False
        return (data[: self._end_bytes], data[self._end_bytes :]) if cut else (data, None)

    def _trim(self) -> None:
        del self._data[self._end_bytes : -self._end_bytes]
        self._cut = True
