"""``report.html``: one file that asks nobody for anything, and does without scripts, web fonts and images."""

from __future__ import annotations

from steps.reports.comparison.record import Comparison
from steps.reports.figures import confirmations
from steps.reports.figures.summary import Summary
from steps.reports.page.sections import UnitFigures, report_sections
from steps.reports.page.templating import as_page, page_templates
from steps.reports.page.unit_rows import make_rows, repository_names
from steps.reports.stored_run import Standing, StoredRun


def render_page(run: StoredRun, summary: Summary, compared: Comparison | None = None, why_not: str = "") -> bytes:
    """The page, UTF-8. Hostile text in it is escaped by the template and made visible before.

    ``why_not``: why it says nothing of an earlier run, where somebody asked for that.
    """
    rows = make_rows(run)
    units = [
        UnitFigures(
            instance_id=unit.instance_id,
            attempt=unit.attempt,
            href=f"#{row.anchor}",
            standing=unit.standing,
            suspect=unit.suspect,
            unconfirmed=confirmations.confirmation_note(unit) if unit.standing is Standing.RESOLVED else "",
            seconds=unit.seconds,
            total_s=unit.total_s,
        )
        for row, unit in zip(rows, run.units, strict=True)
    ]
    sections = report_sections(summary, units, compared, why_not)
    text = (
        page_templates()
        .get_template("report.html.j2")
        .render(**sections, rows=rows, repos=repository_names(run), pages=any(unit.page for unit in run.units))
    )
    return as_page(text)
