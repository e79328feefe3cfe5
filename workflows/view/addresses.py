"""URLs of the viewer's pages."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, urlencode


def run_url(run: str) -> str:
    """Return the address of a run's page."""
    return f"/runs/{quote(run)}"


def unit_url(run: str, instance_id: str, attempt: int) -> str:
    """Return the address of a unit's page."""
    return f"{run_url(run)}/units/{quote(instance_id)}/{attempt}"


def files_url(run: str, instance_id: str, attempt: int) -> str:
    """Return the address prefix of a unit's files."""
    return f"{run_url(run)}/files/units/{quote(instance_id)}/{attempt}/"


def report_url(run: str, name: str) -> str:
    """Return the address of a file of the run's report."""
    return f"{run_url(run)}/files/report/{quote(name)}"


def compare_url(runs: Iterable[str]) -> str:
    """Return the address that compares the last of these runs with the first."""
    return f"/compare?{urlencode([('run', run) for run in runs])}"


def mark_url(run: str) -> str:
    """Return the address of the list of runs, with this run marked for a comparison."""
    return f"/?{urlencode({'run': run})}"


def trend_url(run: str) -> str:
    """Return the address of the page with all runs of this run's spec."""
    return f"/trend?{urlencode({'run': run})}"
