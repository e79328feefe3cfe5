"""Output of an agent program as text."""

from __future__ import annotations

from swe_argo.steps.agents.gateway.events import Printed


class PrintedText:
    """Collector of output, both streams merged, with a note for bytes that the gateway omitted."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, printed: Printed) -> None:
        """Append output."""
        if printed.skipped:
            self._parts.append(f"\n[{printed.skipped:,} bytes of {printed.stream} left out]\n".encode())
        self._parts.append(printed.data)

    def text(self) -> str:
        """Return all output."""
        return b"".join(self._parts).decode("utf-8", "replace")
