"""What an agent program may hand out of its sandbox, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GateLimits:
    """Kept by the gate, which answers what is beyond (404, 413, 429, 431), and once more by whoever reads its frames;
    the last three by the gate alone (``Ended.over``). 503 is its answer where a body, or an answer, finds no room: the
    disk is full, and 4 MiB of memory are taken.

    ``allowed`` are methods and paths without query; a path that ends in * stands for all that begin so.
    """

    allowed: tuple[tuple[str, str], ...]
    body_bytes: int = 16 << 20
    headers: int = 100
    header_bytes: int = 32 << 10
    at_a_time: int = 16
    """Requests that wait for an answer."""
    a_second: float = 20.0
    """Twice as many may come at once."""
    printed_bytes: int = 1 << 20
    """Of what the agent prints to a stream: half as it comes, and half of it is its end."""
    output_bytes: int = 256 << 20
    """What it may print in all before it is ended; 0 for any, as of the two below."""
    home_bytes: int = 1_000_000_000
    """What its HOME may take of the disk before it is ended; looked at once a second, where it is large less often."""
    idle_s: float = 600.0
    """How long it may do nothing before it is ended: no request, no output, of the processor less than a fiftieth."""

    def allows(self, method: str, path: str) -> bool:
        """Whether a request may pass; ``path`` with its query."""
        path = path.partition("?")[0]
        return any(
            method == each and (path.startswith(place[:-1]) if place.endswith("*") else path == place)
            for each, place in self.allowed
        )
