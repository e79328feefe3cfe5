"""``report.html``: one self-contained file without requests, web fonts and images.

Its script only adds to the table: search, order, and filters in the address.
"""

from __future__ import annotations

from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.figures import confirmations
from swe_argo.steps.reports.figures.failing import error_of, first_failing_tests
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.labels import STOPS
from swe_argo.steps.reports.page.sections import report_sections
from swe_argo.steps.reports.page.templating import as_page, page_templates
from swe_argo.steps.reports.page.unit_figures import UnitFigures
from swe_argo.steps.reports.page.unit_rows import make_rows, repository_names, row_columns, stop_reasons
from swe_argo.steps.reports.stored_run import Standing, StoredRun


def render_page(run: StoredRun, summary: Summary, compared: Comparison | None = None, why_not: str = "") -> bytes:
    """Return the page as UTF-8. Hostile text is sanitized first, then escaped by the template.

    ``why_not``: reason why a requested comparison with an earlier run is missing.
    """
    rows = make_rows(run)
    is_shared = bool(confirmations.shared_reason(run.units))
    units = [
        UnitFigures(
            instance_id=unit.instance_id,
            attempt=unit.attempt,
            href=f"#{row.anchor}",
            standing=unit.standing,
            suspect=unit.suspect,
            unconfirmed=(
                confirmations.confirmation_note(unit) if unit.standing is Standing.RESOLVED and not is_shared else ""
            ),
            seconds=unit.seconds,
            total_s=unit.total_s,
            stop=unit.solve.stop_reason.value if unit.solve else "",
            turns=unit.turns,
            tokens=unit.usage.prompt_tokens + unit.usage.completion_tokens,
            cost_usd=unit.usage.cost_usd,
            failing_tests=first_failing_tests(unit),
            error=error_of(unit),
        )
        for row, unit in zip(rows, run.units, strict=True)
    ]
    sections = report_sections(summary, units, compared, why_not)
    text = (
        page_templates()
        .get_template("report.html.j2")
        .render(
            **sections,
            rows=rows,
            columns=row_columns(rows),
            repos=repository_names(run),
            reasons=[(reason, STOPS[reason].name) for reason in stop_reasons(run)],
            pages=any(unit.page for unit in run.units),
        )
    )
    return as_page(text)
