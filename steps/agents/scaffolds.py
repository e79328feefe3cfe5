"""The scaffolds as data over one loop; their tools are in tools, their prompts in templates/prompts."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.agents.calls.parse_result import Rules


@dataclass(frozen=True)
class Scaffold:
    """What tells scaffolds apart beside their tools, prompts and limits (swe_argo.steps.contracts.agents)."""

    name: str
    rules: Rules
    """What counts of an answer."""
    shortens: bool = False
    """Whether a conversation that the endpoint finds too long goes on without the older half of its turns (OpenHands).
    """
    counts_steps: bool = False
    """Whether every message to it says how many steps remain (R2E-Gym)."""


SCAFFOLDS = {
    "r2egym": Scaffold("r2egym", Rules("first", keeps_rest=False), counts_steps=True),
    "openhands": Scaffold("openhands", Rules("all", keeps_rest=False, stop=("</function",)), shortens=True),
    "sweagent": Scaffold("sweagent", Rules("one")),
}
"""Name -> scaffold."""
