"""Scaffolds as data for the shared loop; their tools are in tools, their prompts in templates/prompts."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.agents.calls.parse_result import Rules


@dataclass(frozen=True)
class Scaffold:
    """Properties of a scaffold besides its tools, prompts and limits (swe_argo.steps.contracts.agents)."""

    name: str
    rules: Rules
    """Rules for parsing answers."""
    shortens: bool = False
    """Whether a conversation that is too long for the endpoint continues without the older half of its turns
    (OpenHands)."""
    counts_steps: bool = False
    """Whether every message to it ends with the remaining steps (R2E-Gym)."""


SCAFFOLDS = {
    "r2egym": Scaffold("r2egym", Rules("first", keeps_rest=False), counts_steps=True),
    "openhands": Scaffold("openhands", Rules("all", keeps_rest=False, stop=("</function",)), shortens=True),
    "sweagent": Scaffold("sweagent", Rules("one")),
}
"""Name -> scaffold."""
