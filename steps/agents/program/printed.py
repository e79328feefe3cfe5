"""What an agent program printed itself, as text."""

from __future__ import annotations

from swe_argo.steps.agents.gate.events import Printed


class PrintedText:
    """Takes what was printed as it comes, both streams in one; of one the gate has left out the middle, it is said."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, printed: Printed) -> None:
        """What came next."""
        if printed.skipped:
            self._parts.append(f"\n[{printed.skipped:,} bytes of {printed.stream} left out]\n".encode())
        self._parts.append(printed.data)

    def text(self) -> str:
        """All of it."""
        return b"".join(self._parts).decode("utf-8", "replace")
