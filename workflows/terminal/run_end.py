"""The end of a run at a terminal: the head of its report."""

from __future__ import annotations

from rich.console import Console

from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.messages import terminal
from swe_argo.workflows.api.run import Run

EXIT_FAILED = 4
"""Exit code of a run that was ended by a failure because that was requested."""


def print_run_end(run: Run, console: Console) -> Summary:
    """Print the head of the run's report. Raises ConfigError if there is no report."""
    summary = run.summary
    console.print("\n".join(terminal.summary_lines(summary, run.page)), highlight=False, soft_wrap=True, markup=False)
    return summary
