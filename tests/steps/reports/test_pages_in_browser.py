"""Report pages, unit pages and training pages in Chromium: they fit, can be read, load nothing, and react."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

import pytest

from swe_argo.steps.contracts.data import Instance, Patch
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.reports.training.page import training_page_key, write_training_page
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from tests.chromium import Scheme, Tab, browser, needs_browser
from tests.long_params import long_unless
from tests.steps.reports.page_checks import check_contrast, check_quiet, check_served_by_argo, check_words
from tests.steps.reports.synthetic import Synthetic
from tests.steps.reports.synthetic_training import HOSTILE_SPEC, SyntheticTraining
from tests.steps.reports.trajectories import trajectory

# The first test of a page writes it, which takes minutes for the largest ones on a busy machine.
pytestmark = [needs_browser, pytest.mark.browser, pytest.mark.xdist_group("page"), pytest.mark.timeout(1200)]

WORSE = {"resolved": 40, "unresolved": 50, "empty_patch": 4, "failed": 4}
RUNS = {
    "plain": Synthetic(instances=20, mix={"resolved": 5, "unresolved": 4, "failed": 1, "empty_patch": 1}),
    "rich": Synthetic(instances=40, attempts=2, agent="r2egym", suspects=0.2, log_lines=3, mix=WORSE),
    "failed": Synthetic(instances=10, mix={"failed": 1}),
    "empty": Synthetic(instances=0),
    "hostile": Synthetic(instances=12, hostile=True, suspects=1, mix={"resolved": 1, "unresolved": 2, "failed": 1}),
    "many": Synthetic(instances=260, log_lines=5),
    "large": Synthetic(instances=2294, log_lines=60, mix={"unresolved": 1}),
}
BEFORE = {
    "rich": Synthetic("monday", 44, spec={"agent": {"max_steps": 60, "name": "replay"}}, mix={"resolved": 1}),
    "hostile": Synthetic("before", instances=12, hostile=True, mix={"resolved": 1}),
    "large": Synthetic("before", instances=2294, log_lines=1, mix={"resolved": 1}),
}
"""The earlier runs that reports compare with."""
UNITS = {
    "unit": Synthetic(instances=1, mix={"unresolved": 1}, agent="r2egym", turns=30, others=1),
    "unit, failed": Synthetic(instances=1, mix={"failed": 1}, agent="r2egym", turns=5),
    "unit, hostile": Synthetic(instances=1, mix={"unresolved": 1}, agent="r2egym", turns=12, hostile=True, suspects=1),
    "unit, long": Synthetic(instances=1, mix={"resolved": 1}, agent="r2egym"),
}
TRAININGS = {
    "training": SyntheticTraining(steps=21, every=20, reports=1),
    "training, empty": SyntheticTraining(steps=0),
    "training, hostile": SyntheticTraining(steps=3, spec=HOSTILE_SPEC),
}
KINDS = ("rich", "unit", "training")
QUICK = ("rich", "failed", "empty", "hostile", *UNITS, "training", "training, empty", "training, hostile")
"""Pages that ``make test`` checks; the others are large, or differ little from these."""
HIGHEST = 40
"""CSS pixels of a unit: one line."""
VISIBLE_ROWS = "[...document.querySelectorAll('.u')].filter(e => e.getClientRects().length)"
UNFOLDED = "[...document.querySelectorAll('.more')].filter(e => e.getClientRects().length).length"


class Pages(dict[str, Path]):
    """The page of every run, unit and training, by name, written when it is first used."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self.folders = folders

    def __missing__(self, name: str) -> Path:
        folder = self.folders.mktemp("page")
        store = open_store(str(folder), create=True)
        self[name] = folder / (write_run(store, name) if name in RUNS else write_unit_or_training(store, name))
        return self[name]


def write_run(store: Store, name: str) -> str:
    RUNS[name].write(store)
    if earlier := BEFORE.get(name):
        earlier.write(store)
    write_report(store, "synthetic", earlier.run_id if earlier else None)
    return "runs/synthetic/report/report.html"


def write_unit_or_training(store: Store, name: str) -> str:
    if name in TRAININGS:
        TRAININGS[name].write(store)
        write_training_page(store, "grpo")
        return training_page_key("grpo")
    (unit,) = UNITS[name].write(store).units
    if name == "unit, long":
        whole = trajectory((unit.instance_id, 1), turns=1000, observed=30_000)
        store.put(key(Trajectory, "synthetic", unit.instance_id, 1), whole.to_bytes())
        place = key(Instance, "synthetic", unit.instance_id)
        issue = {"problem_statement": "It fails.\n\n" * 200}
        store.put(place, Instance.from_bytes(store.get(place)).model_copy(update=issue).to_bytes())
        patch = b"--- a/x\n+++ b/x\n@@ -0,0 +1,900 @@\n" + b"+x\n" * 900
        store.put(key(Patch, "synthetic", unit.instance_id, 1), patch)
    write_report(store, "synthetic")
    return f"runs/synthetic/report/instances/{unit.instance_id}.1.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory)


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """A tab that all tests share."""
    with browser() as opened:
        yield opened


@pytest.fixture
def table(tab: Tab, pages: Pages) -> Iterator[Tab]:
    """The tab with the rich report, freshly opened."""
    reopen(tab, pages["rich"].as_uri())
    yield tab
    assert tab.messages == []


def reopen(tab: Tab, address: str) -> None:
    """Open a page without the state that an earlier test left in its address."""
    tab.size(1400)
    tab.open("about:blank")
    tab.open(address)


@contextmanager
def without_scripts(tab: Tab) -> Iterator[Tab]:
    """Open a tab of the same browser in which scripts do not run."""
    chromium = tab.page.context.browser
    assert chromium is not None
    with chromium.new_context(java_script_enabled=False) as context:
        yield Tab(context.new_page())


def number(tab: Tab, selector: str) -> int:
    return int(tab.value(f"document.querySelectorAll({selector!r}).length"))


@pytest.mark.parametrize("page", long_unless(QUICK, (*RUNS, *UNITS, *TRAININGS)))
def test_page_is_quiet_and_fits(pages: Pages, tab: Tab, page: str) -> None:
    check_quiet(tab, pages[page])


COLOURFUL = ("rich", "hostile", "unit", "unit, failed", "training")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", COLOURFUL)
def test_page_has_readable_contrast(pages: Pages, tab: Tab, page: str, scheme: Scheme) -> None:
    check_contrast(tab, pages[page], scheme, 12)


@pytest.mark.parametrize("page", KINDS)
def test_page_works_with_argo_headers(pages: Pages, tab: Tab, page: str) -> None:
    check_served_by_argo(tab, pages[page])


@pytest.mark.parametrize("page", KINDS)
def test_page_is_accessible(pages: Pages, tab: Tab, page: str) -> None:
    check_words(tab, pages[page])


@pytest.mark.parametrize("medium", ["screen", "print"])
def test_report_rows_are_one_line(pages: Pages, tab: Tab, medium: Literal["screen", "print"]) -> None:
    with without_scripts(tab) as bare:  # scripts draw more rows on scroll
        bare.page.emulate_media(media=medium)
        bare.open(pages["many"].as_uri())
        for width in (390, 768, 960, 1024, 1153, 1400):
            bare.size(width)
            bare.settle()
            assert number(bare, ".u") == 260
            assert bare.value("document.querySelector('.units tbody th').getBoundingClientRect().width") > 150, width
            assert bare.value("document.querySelector('.units').offsetHeight") < 261 * HIGHEST, width
            assert bare.sideways() == 0, width


@pytest.mark.long
def test_report_of_2294_units_fits_5_mb(pages: Pages) -> None:
    assert 1_000_000 < pages["large"].stat().st_size <= 5_000_000


def test_report_draws_rows_on_scroll(pages: Pages, tab: Tab) -> None:
    reopen(tab, f"{pages['many'].as_uri()}#u240")
    assert number(tab, ".u:target .more") == 1
    assert tab.value(UNFOLDED) == 1
    reopen(tab, pages["many"].as_uri())
    assert tab.value(f"{VISIBLE_ROWS}.length") == 200
    tab.value("document.querySelector('.units + .cut').scrollIntoView()")
    tab.page.wait_for_function("document.querySelectorAll('.u').length > 200", timeout=60_000)
    tab.page.emulate_media(media="print")
    tab.page.wait_for_function("document.querySelectorAll('.u').length === 260", timeout=60_000)
    tab.page.emulate_media(media="null")


def test_report_unfolds_row(pages: Pages, tab: Tab) -> None:
    reopen(tab, pages["plain"].as_uri())
    counts = [tab.value(UNFOLDED)]
    for place in ("#u3 summary", "#u3 summary", ".slowest a"):
        tab.click(place)
        counts.append(tab.value(UNFOLDED))
    assert counts == [0, 1, 0, 1]


def test_report_prints_everything(pages: Pages, tab: Tab) -> None:
    reopen(tab, pages["plain"].as_uri())
    tab.page.emulate_media(media="print")
    tab.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = "[...document.querySelectorAll('pre')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert tab.value(cut) == 0
    assert tab.value("document.querySelector('.filters').getClientRects().length") == 0
    assert tab.value("getComputedStyle(document.querySelector('.units > thead')).display") == "table-header-group"
    tab.page.emulate_media(media="null")


def query(tab: Tab) -> dict[str, list[str]]:
    return parse_qs(str(tab.value("location.hash")).removeprefix("#units").removeprefix("?"))


def column(tab: Tab, place: int) -> list[Any]:
    cell = f"e.rows[0].cells[{place}]"
    return list(tab.value(f"{VISIBLE_ROWS}.map(e => {cell}.dataset.v ? +{cell}.dataset.v : {cell}.textContent)"))


def reopened(tab: Tab) -> list[Any]:
    """Return the instances that the same address shows when opened afresh."""
    reopen(tab, tab.value("location.href"))
    return column(tab, 0)


def test_table_sorts_in_three_states(table: Tab) -> None:
    planned = column(table, 0)
    table.click("[data-name=time] button")
    times = [time for time in column(table, 6) if time != ""]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) > 10
    assert table.value("document.querySelector('[data-name=time]').ariaSort") == "descending"
    assert query(table) == {"sort": ["-time"]}
    assert reopened(table) != planned
    table.click("[data-name=time] button")
    assert column(table, 6)[: len(times)] == sorted(times)  # rows without a time are last either way
    table.click("[data-name=time] button")
    assert column(table, 0) == planned
    assert table.value("location.hash") == "#units"


def test_table_searches_ids_and_titles(table: Tab) -> None:
    table.page.keyboard.press("/")
    table.page.keyboard.type("django rows")
    table.settle()
    names = column(table, 0)
    assert 0 < len(names) < 80
    assert all("django" in name and "rows" in name for name in names)
    assert table.value("document.querySelector('#f-count').textContent") == f"{len(names)} of 80 units"
    assert query(table) == {"q": ["django rows"]}
    assert reopened(table) == names
    table.page.focus("#f-search input")
    table.page.keyboard.press("Escape")
    table.settle()
    assert len(column(table, 0)) == 80


def test_table_keeps_filters_in_address(table: Tab) -> None:
    for tone in ("resolved", "unresolved"):
        table.click(f"label[for=f-{tone}]")
        assert 0 < len(column(table, 0)) == number(table, f".u.{tone}") < 80
    table.page.select_option("#f-attempt", "2")
    table.page.select_option("#f-stop", "finished")
    table.settle()
    names = column(table, 0)
    assert 0 < len(names) < 40
    assert set(column(table, 1)) == {"2"}
    assert query(table) == {"outcome": ["unresolved"], "attempt": ["2"], "stop": ["finished"]}
    assert reopened(table) == names
    table.click("label[for=f-suspect]")
    assert query(table) == {"suspect": ["yes"], "attempt": ["2"], "stop": ["finished"]}
    table.value("location.hash = '#units'")
    table.settle()
    table.value("document.querySelector('#f-repo').selectedIndex = 1")
    table.settle()
    assert len(column(table, 0)) == number(table, ".u.r0") > 0


def test_table_filters_by_cell(table: Tab) -> None:
    cells = "document.querySelectorAll('.crossed td:not(.all) a')"
    for place in (0, table.value(f"{cells}.length") - 1):
        count = int(table.value(f"{cells}[{place}].textContent"))
        table.value(f"{cells}[{place}].click()")
        table.settle()
        assert len(column(table, 0)) == count
        assert set(query(table)) == {"outcome", "stop"}
    total = sum(int(text) for text in table.value(f"[...{cells}].map(e => e.textContent)"))
    table.value("location.hash = '#units'")
    table.settle()
    assert total == number(table, ".u:is(.s0, .s1, .s2, .s3, .s4, .s5, .s6, .s7)")


def test_table_ignores_unknown_filters(table: Tab, pages: Pages) -> None:
    reopen(table, f"{pages['rich'].as_uri()}#units?outcome=nothing&stop=%22%5D&repo=a/b&attempt=9&sort=-weight")
    assert len(column(table, 0)) == 80


def test_table_keys_move_between_rows(table: Tab) -> None:
    table.click("label[for=f-unresolved]")
    names = table.value(f"{VISIBLE_ROWS}.map(e => e.id)")
    for stroke, place in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        table.page.keyboard.press(stroke)
        assert table.value("document.activeElement.closest('.u')?.id") == names[place]
    table.page.keyboard.press("Shift+Tab")
    table.page.keyboard.press("Enter")  # the arrow before the name unfolds the row
    assert table.value("document.activeElement.closest('.u').querySelector('.more').getClientRects().length") == 1


def test_table_works_without_scripts(tab: Tab, pages: Pages) -> None:
    with without_scripts(tab) as bare:
        bare.open(pages["rich"].as_uri())
        assert len(column(bare, 0)) == 80
        assert bare.value("document.querySelector('#f-search').getClientRects().length") == 0
        bare.click("label[for=f-unresolved]")
        assert 0 < len(column(bare, 0)) < 80
        assert bare.value("document.querySelector('.crossed a').hash") == "#units"


def test_unit_page_unfolds_turns(pages: Pages, tab: Tab) -> None:
    reopen(tab, pages["unit"].as_uri())
    visible = "[...document.querySelectorAll('.seen pre')].filter(e => e.checkVisibility()).length"
    shut = "#turns details:not([open])"
    folded = number(tab, shut)
    assert (tab.value(visible), folded > 20) == (0, True)
    tab.click("#t5 .seen summary")
    assert tab.value(visible) == 1
    tab.click("[data-expand]")
    assert number(tab, shut) == 0
    tab.click("[data-expand]")
    assert number(tab, shut) == folded


def test_unit_page_cuts_long_texts(pages: Pages, tab: Tab) -> None:
    cut = (
        "[...document.querySelectorAll('.fold > :first-child')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    )
    reopen(tab, pages["unit, long"].as_uri())
    assert (number(tab, "article"), tab.value(cut)) == (1002, 2)
    tab.page.emulate_media(media="print")
    assert tab.value(cut) == 0
    tab.page.emulate_media(media="null")
    for label in tab.page.query_selector_all(".fold > label"):
        label.click()
    tab.settle()
    assert tab.value(cut) == 0
