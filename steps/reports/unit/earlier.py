"""An earlier verdict that was replaced by --redo, as text."""

from __future__ import annotations

from swe_argo.steps.contracts.redone import Redone
from swe_argo.steps.reports.labels import STANDINGS, STOPS
from swe_argo.steps.reports.text.formatting import money, tokens, utc


def describe_earlier(earlier: Redone) -> str:
    """Return the earlier verdict's outcome, stop reason, --redo request and usage as text."""
    parts = [STANDINGS[earlier.outcome].short, STOPS[earlier.stop_reason].name if earlier.stop_reason else ""]
    parts.append(f"run again at {utc(earlier.at)} (--redo {earlier.requested})")
    if token_count := earlier.usage.prompt_tokens + earlier.usage.completion_tokens:
        parts.append(f"{tokens(token_count)} tokens")
    if earlier.usage.cost_usd is not None:
        parts.append(money(earlier.usage.cost_usd))
    return ", ".join(filter(None, parts))
