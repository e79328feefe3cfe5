"""Two runs side by side at a terminal: what changed first, then what was gained and lost."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from swe_argo.steps.reports.messages.terminal import comparison_lines
from swe_argo.steps.store import open_store
from swe_argo.workflows.api.run import Run


def compare(earlier: tuple[str, str], later: tuple[str, str], console: Console, *, as_json: bool) -> None:
    """Print how ``later`` differs from ``earlier``, each (store, run id).

    ``as_json``: compare.json instead of words. Raises ConfigError for a run that is unknown, has no report, or is
    named twice.
    """
    before, after = (Run(open_store(store), run) for store, run in (earlier, later))
    compared = after.compare(before)
    if as_json:
        sys.stdout.write(compared.to_bytes().decode())
    else:
        console.print(Text("\n".join(comparison_lines(compared))), soft_wrap=True)
