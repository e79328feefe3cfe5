"""A run's trajectories and patches in other projects' files, at a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from steps import export as exports
from steps.reports.text.formatting import count
from steps.store import open_store


def export(
    store: str, run: str, form: exports.ExportFormat, out: Path | None, console: Console, *, force: bool
) -> None:
    """Write them, and say where. Raises ConfigError and InfraError."""
    with console.status(f"exporting {run}"):
        result = exports.export(open_store(store), run, form, out, force=force)
    for notice in result.notices:
        console.print(f"note: {notice}", style="dim", highlight=False, soft_wrap=True, markup=False)
    console.print(f"{count(result.units, 'unit')} in {result.path}", highlight=False, soft_wrap=True, markup=False)
