"""Limits on an agent program's requests and output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GatewayLimits:
    """Limits of an agent program, enforced by the gateway and again by the reader of its frames.

    The gateway answers excess requests with 404, 413, 429 or 431, and with 503 if a body or an answer does not fit: the
    disk is full, and 4 MiB of memory are in use. It alone enforces the last three limits (``Ended.exceeded_limit``).
    ``allowed`` are methods and paths without query; a path that ends in * is a prefix.
    """

    allowed: tuple[tuple[str, str], ...]
    body_bytes: int = 16 << 20
    headers: int = 100
    header_bytes: int = 32 << 10
    max_concurrent: int = 16
    """Concurrent requests."""
    requests_per_second: float = 20.0
    """Requests per second; bursts may have twice as many."""
    printed_bytes: int = 1 << 20
    """Bytes passed on per output stream: half from the beginning, half from the end."""
    output_bytes: int = 256 << 20
    """Total bytes of output before the agent is ended; 0 for no limit, as for the next two."""
    home_bytes: int = 1_000_000_000
    """Bytes of its HOME on disk before the agent is ended; checked once a second, less often if large."""
    idle_s: float = 600.0
    """Idle seconds before the agent is ended: no request, no output, less than a fiftieth of the processor."""

    def allows(self, method: str, path: str) -> bool:
        """Return whether a request is allowed; ``path`` may have a query."""
        path = path.partition("?")[0]
        return any(
            method == allowed_method
            and (path.startswith(allowed_path[:-1]) if allowed_path.endswith("*") else path == allowed_path)
            for allowed_method, allowed_path in self.allowed
        )
