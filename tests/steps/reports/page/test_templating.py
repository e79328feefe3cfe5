from __future__ import annotations

import pytest

from swe_argo.steps.reports.page.templating import keep_units, page_templates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45.0 % resolved", "45.0~% resolved"),
        ("3 m 12 s a unit", "3~m~12~s a unit"),
        ("2 h 05 m, 1.2 M tokens", "2~h~05~m, 1.2~M tokens"),
        ("12,345 tokens, +1.5 points", "12,345~tokens, +1.5~points"),
        ("in 3 slots and 4 months", "in 3 slots and 4 months"),
    ],
)
def test_keep_units_joins_figures(text: str, expected: str) -> None:
    assert keep_units(text).replace("\u00a0", "~") == expected


def test_filters_join_figures_and_units() -> None:
    template = page_templates().from_string('{{ 192|duration }}; {{ 1200000|tokens }}; {{ 3|count("issue") }}')
    assert template.render().replace("\u00a0", "~") == "3~m~12~s; 1.2~M; 3~issues"
