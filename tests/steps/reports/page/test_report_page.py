from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from tests.chromium import Scheme, Tab, needs_browser
from tests.long_params import long_unless
from tests.steps.reports.page_checks import check_contrast, check_quiet, check_served_by_argo, check_words
from tests.steps.reports.synthetic import Synthetic

# The first test of a run has it written, which takes minutes for the large ones where much else goes on.
pytestmark = [needs_browser, pytest.mark.browser, pytest.mark.xdist_group("page"), pytest.mark.timeout(1200)]

RUNS = {
    "small": Synthetic(instances=30, mix={"resolved": 5, "unresolved": 4, "failed": 1, "empty_patch": 1}),
    "attempts": Synthetic(instances=12, attempts=4),
    "failed": Synthetic(instances=20, mix={"failed": 1}),
    "empty": Synthetic(instances=0),
    "agent": Synthetic(instances=60, agent="r2egym", model="openai/model-1"),
    "gold": Synthetic(instances=10, agent="gold", model="gold", mix={"resolved": 1}, suspects=0),
    "large": Synthetic(instances=2294, log_lines=60),
    "verified": Synthetic(instances=500, log_lines=5),
    "four times": Synthetic(instances=30, attempts=4, log_lines=5),
    "hostile": Synthetic(instances=25, hostile=True, suspects=1),
    "compared": Synthetic(instances=120, mix={"resolved": 45, "unresolved": 45, "empty_patch": 4, "failed": 4}),
    "compared-hostile": Synthetic(instances=25, hostile=True, mix={"unresolved": 2, "failed": 1}),
    "compared-large": Synthetic(instances=2294, log_lines=60, mix={"unresolved": 1}),
    "first": Synthetic(instances=5),
}
BEFORE = {
    "compared": Synthetic("before", instances=130, spec={"agent": {"name": "replay", "max_steps": 60}}),
    "compared-hostile": Synthetic("before", instances=25, hostile=True, mix={"resolved": 1}),
    "compared-large": Synthetic("before", instances=2294, log_lines=1, mix={"resolved": 1}),
    "first": None,
}
"""The earlier run that a run is compared with; none: it is asked for, and there is none."""
QUICK = ("small", "failed", "empty", "verified", "hostile", "compared")
"""The others are large, or their page differs little from another's."""
HIGHEST = 40
"""CSS pixels of a unit: one line."""


class Pages(dict[str, Path]):
    """The page of every run, by name, each written when it is first looked at."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self.folders = folders

    def __missing__(self, name: str) -> Path:
        folder = self.folders.mktemp(name)
        store = open_store(str(folder), create=True)
        RUNS[name].write(store)
        if earlier := BEFORE.get(name):
            earlier.write(store)
        write_report(store, "synthetic", None if name not in BEFORE else earlier.run_id if earlier else "last")
        self[name] = folder / "runs/synthetic/report/report.html"
        return self[name]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory)


@pytest.mark.parametrize("medium", ["screen", "print"])
@pytest.mark.parametrize(("run", "units"), [("verified", 500), ("four times", 120)])
@pytest.mark.long
def test_page_rows_are_bounded_in_height(
    pages: dict[str, Path], tab: Tab, run: str, units: int, medium: Literal["screen", "print"]
) -> None:
    browser = tab.page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as context:  # scripts draw more rows as one goes down
        tab = Tab(context.new_page())
        tab.page.emulate_media(media=medium)
        tab.open(pages[run].as_uri())
        for width in (390, 768, 960, 1024, 1153, 1400):
            tab.size(width)
            tab.settle()
            assert tab.value("document.querySelectorAll('.u').length") == units
            assert tab.value("document.querySelector('.units tbody th').getBoundingClientRect().width") > 150, width
            assert tab.value("document.querySelector('.units').offsetHeight") < (units + 1) * HIGHEST, width
            assert tab.sideways() == 0, width


@pytest.mark.parametrize("run", long_unless(QUICK, RUNS))
def test_page_is_quiet_and_fits(pages: dict[str, Path], tab: Tab, run: str) -> None:
    check_quiet(tab, pages[run])


@pytest.mark.long
@pytest.mark.parametrize("run", ["large", "compared-large"])
def test_page_of_2294_units_fits_5_mb(pages: dict[str, Path], run: str) -> None:
    assert 1_000_000 < pages[run].stat().st_size <= 5_000_000


@pytest.mark.parametrize("run", ["hostile", "compared-hostile"])
def test_page_escapes_hostile_text(pages: dict[str, Path], tab: Tab, run: str) -> None:
    tab.open(pages[run].as_uri())
    assert tab.value("document.querySelectorAll('img, iframe, object, form').length") == 0
    assert tab.value("document.scripts.length") == 1
    assert tab.value("document.querySelectorAll('style').length") == 1
    assert tab.value("document.querySelectorAll('.units > tbody').length") == 25
    # nothing broke out of its row: every unit has its two rows, and nothing else stands in the table
    assert tab.value("document.querySelectorAll('.units > tbody > tr').length") == 50
    text = str(tab.value("document.body.textContent"))
    for visible in ("<script>", "</details>", "␛[31mred", "␀ NUL", "\\x9b31m", "\\u202egnp", "{{ 7*7 }}", "\\xff\\xfe"):
        assert visible in text, visible
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", text)


def test_page_cuts_long_lines(pages: dict[str, Path], tab: Tab) -> None:
    tab.open(pages["hostile"].as_uri())
    lines = "[...document.querySelectorAll('li, p, pre')].flatMap(e => e.textContent.split('\\n'))"
    assert 200 < tab.value(f"Math.max(...{lines}.map(line => line.length))") < 500
    assert "more bytes" in str(tab.value("document.querySelector('.units').textContent"))


@pytest.mark.parametrize("run", long_unless(("small",), ("small", "hostile", "compared")))
def test_page_works_with_argo_headers(pages: dict[str, Path], tab: Tab, run: str) -> None:
    check_served_by_argo(tab, pages[run])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("run", ["small", "attempts", "agent", "gold", "hostile", "compared", "first"])
def test_page_has_readable_contrast(pages: dict[str, Path], tab: Tab, run: str, scheme: Scheme) -> None:
    check_contrast(tab, pages[run], scheme, 15)


def test_page_draws_rows_on_scroll(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open("about:blank")
    tab.open(f"{pages['verified'].as_uri()}#u450")
    assert tab.value("document.querySelector('.u:target .more').getClientRects().length") == 1
    tab.open("about:blank")
    tab.open(pages["verified"].as_uri())
    assert visible_rows(tab) == 200
    tab.value("document.querySelector('.units + .cut').scrollIntoView()")
    tab.page.wait_for_function("document.querySelectorAll('.u').length > 200", timeout=60_000)
    tab.page.emulate_media(media="print")
    tab.page.wait_for_function("document.querySelectorAll('.u').length === 500", timeout=60_000)
    tab.page.emulate_media(media="null")


def visible_rows(tab: Tab) -> int:
    return int(tab.value("[...document.querySelectorAll('.u')].filter(e => e.getClientRects().length).length"))


def test_page_filters_rows_by_outcome(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open(pages["small"].as_uri())
    assert visible_rows(tab) == 30
    for tone in ("resolved", "unresolved", "infra", "empty"):
        tab.click(f"label[for=f-{tone}]")
        count = tab.value(f"document.querySelectorAll('.u.{tone}').length")
        assert 0 < visible_rows(tab) == count < 30
    tab.click("label[for=f-all]")
    assert visible_rows(tab) == 30


def test_page_filters_by_repository(pages: dict[str, Path], tab: Tab) -> None:
    tab.open(pages["attempts"].as_uri())
    assert visible_rows(tab) == 48
    tab.value("document.querySelector('#f-attempt').selectedIndex = 2")
    tab.settle()
    assert visible_rows(tab) == 12
    tab.value("document.querySelector('#f-repo').selectedIndex = 1")
    tab.settle()
    assert visible_rows(tab) == tab.value("document.querySelectorAll('.u.r0.a2').length") > 0


def test_page_unfolds_row(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open(pages["small"].as_uri())
    unfolded = "[...document.querySelectorAll('.more')].filter(e => e.getClientRects().length).length"
    assert tab.value(unfolded) == 0
    tab.click("#u3 summary")
    assert tab.value(unfolded) == 1
    tab.click("#u3 summary")
    assert tab.value(unfolded) == 0
    tab.click(".slowest a")
    assert tab.value(unfolded) == 1


def test_page_prints_everything(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(800)
    tab.open(pages["small"].as_uri())
    tab.page.emulate_media(media="print")
    tab.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = "[...document.querySelectorAll('pre')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert tab.value(cut) == 0
    assert tab.value("document.querySelector('.filters').getClientRects().length") == 0
    assert tab.value("getComputedStyle(document.querySelector('.units > thead')).display") == "table-header-group"
    tab.page.emulate_media(media="null")


def test_page_is_accessible(pages: dict[str, Path], tab: Tab) -> None:
    check_words(tab, pages["small"])
