"""The scaffolds as data over one loop; their tools are in tools, their prompts in templates/prompts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scaffold:
    """What tells one scaffold from another beside its tools and its prompts."""

    name: str
    counts_steps: bool = False
    """Whether every message to it says how many steps remain (R2E-Gym)."""


SCAFFOLDS = {
    "r2egym": Scaffold("r2egym", counts_steps=True),
    "openhands": Scaffold("openhands"),
    "sweagent": Scaffold("sweagent"),
}
"""Name -> scaffold."""
