"""Figures of made-up units."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.reports.page.unit_figures import UnitFigures
from swe_argo.steps.reports.stored_run import Standing


def figures(
    instance: str = "a", attempt: int = 1, standing: Standing = Standing.UNRESOLVED, **more: Any
) -> UnitFigures:
    defaults: dict[str, Any] = {"suspect": False, "unconfirmed": "", "seconds": {}, "total_s": 1.0}
    return UnitFigures(instance, attempt, f"#{instance}-{attempt}", standing, **{**defaults, **more})
