"""A buffer that keeps the beginning and the end of a long output."""

from __future__ import annotations


class BothEnds:
    """Collects bytes; if there are more than twice ``each``, keeps the first and the last ``each`` bytes."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._data = bytearray()
        self._cut = False

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes | bytearray) -> None:
        """Append the next bytes."""
        self._data += data
        if len(self._data) > 4 * self._each:
            self._trim()

    def skip(self) -> None:
        """Mark a gap: the next bytes do not follow those kept so far, of which only the beginning stays."""
        del self._data[self._each :]
        self._cut = True

    def cut_at(self, mark: bytes) -> bool:
        """Drop a mark and everything after it. Return whether it was present."""
        at = self._data.find(mark)
        if at >= 0:
            del self._data[at:]
        return at >= 0

    def take(self) -> tuple[bytes, bytes | None]:
        """Return (beginning, end), or (everything, None) if it is short, and empty the buffer."""
        if len(self._data) > 2 * self._each:
            self._trim()
        data, cut = bytes(self._data), self._cut
        self._data.clear()
        self._cut = False
        return (data[: self._each], data[self._each :]) if cut else (data, None)

    def _trim(self) -> None:
        del self._data[self._each : -self._each]
        self._cut = True
