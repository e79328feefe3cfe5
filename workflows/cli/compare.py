"""Comparison of two runs at a terminal: differences in set-up, then gains and losses."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from swe_argo.steps.reports.messages.terminal import comparison_lines
from swe_argo.steps.store import open_store
from swe_argo.workflows.api.run import Run


def compare(first: tuple[str, str], second: tuple[str, str], console: Console, *, as_json: bool) -> None:
    """Print the comparison of two runs, the second minus the first.

    Args:
        first: Store and run id.
        second: Store and run id.
        console: The terminal.
        as_json: Whether to print ``compare.json`` instead of text.

    Raises:
        ConfigError: A run is unknown or has no report, or both are the same run.
    """
    before, after = (Run(open_store(store), run) for store, run in (first, second))
    compared = after.compare(before)
    if as_json:
        sys.stdout.write(compared.to_bytes().decode())
    else:
        console.print(Text("\n".join(comparison_lines(compared))), soft_wrap=True)
