from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.page import excerpts
from swe_argo.steps.reports.page.report_page import render_page
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.reports.stored_run import Standing, StoredRun
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic import Synthetic
from tests.steps.reports.texts import HOSTILE


def view_of(folder: Path, synthetic: Synthetic) -> StoredRun:
    store = open_store(str(folder), create=True)
    synthetic.write(store)
    return read_run(store, "synthetic")


@pytest.mark.parametrize("hostile", [False, True])
def test_excerpts_fit_page_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: bool) -> None:
    view = view_of(tmp_path, Synthetic(instances=150, hostile=hostile, attempts=2, suspects=0.3))
    remaining = len(render_page(StoredRun(view.run, view.plan, [], []), summarise(view)))
    monkeypatch.setattr(excerpts, "PAGE_BYTES", 450_000)
    written = len(render_page(view, summarise(view)))
    assert 300_000 < written < 450_000 + remaining + 60_000  # the parts above the table do not grow with the units


def test_small_run_has_full_excerpts(tmp_path: Path) -> None:
    view = view_of(tmp_path, Synthetic(instances=3, mix={"unresolved": 1}))
    shares = excerpts.share_out(view.units)
    for unit, excerpt in zip(view.units, shares, strict=True):
        assert unit.patch is not None
        assert unit.grade is not None
        assert len(excerpt.patch.lines) == min(200, unit.patch.count(b"\n"))
        assert len(excerpt.log.lines) == 40
        assert len(excerpt.tests.lines) == min(20, len(unit.grade.failing_tests))


def test_resolved_excerpts_are_short(tmp_path: Path) -> None:
    view = view_of(tmp_path, Synthetic(instances=40, mix={"resolved": 1}, suspects=0.5))
    for unit, excerpt in zip(view.units, excerpts.share_out(view.units), strict=True):
        assert unit.standing is Standing.RESOLVED
        assert bool(excerpt.log.lines) == unit.suspect
        assert excerpt.patch.lines


def test_diff_runs_group_like_lines() -> None:
    lines = ["diff --git a/x b/x", "--- a/x", "+++ b/x", "@@ -1 +1 @@", " same", "-old", "+new", "+newer"]
    kinds = [(kind, text.count("\n")) for kind, text in excerpts.diff_runs(lines)]
    assert kinds == [("b", 4), ("", 1), ("del", 1), ("ins", 2)]


def test_page_escapes_hostile_text(tmp_path: Path) -> None:
    view = view_of(tmp_path, Synthetic(instances=30, hostile=True, suspects=1, model=f"lab/{HOSTILE}"))
    written = render_page(view, summarise(view)).decode()
    for element in ("<script>document", "<img", "onerror=document.title=1>", "</style><style"):
        assert element not in written, element
    assert written.count("&lt;script&gt;") > 100
    assert written.count("</table>") == len(("repositories", "difficulties", "slowest", "units"))
