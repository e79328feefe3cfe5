"""The templates of all pages: compiled once, autoescaped, with the words that people read numbers in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from swe_argo.steps import TEMPLATES
from swe_argo.steps.reports.page.excerpts import diff_runs
from swe_argo.steps.reports.text.formatting import count, duration, listing, money, percent, tokens
from swe_argo.steps.reports.text.visible import make_visible

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE_FOLDER = TEMPLATES / "report"
"""Templates, and the scripts that pages bring along."""


@cache
def page_templates() -> Environment:
    """Hostile text is escaped here, and made visible before. Text joins a page as UTF-8 by ``as_page``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(PAGE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "duration": duration,
        "money": money,
        "tokens": tokens,
        "percent": percent,
        "count": count,
        "listing": listing,
        "visible": make_visible,
        "diff_runs": diff_runs,
    }
    return environment


def as_page(text: str) -> bytes:
    """UTF-8; a lone surrogate that slipped through is written out."""
    return text.encode(errors="backslashreplace")
