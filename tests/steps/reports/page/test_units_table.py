from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from tests.chromium import Tab, needs_browser
from tests.steps.reports.synthetic import Synthetic

pytestmark = [needs_browser, pytest.mark.browser]

SHOWN = "[...document.querySelectorAll('.u')].filter(e => e.getClientRects().length)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 attempts, those that agents were stopped at and contradicted ones among them."""
    folder = tmp_path_factory.mktemp("table")
    Synthetic(instances=40, attempts=2, agent="r2egym", suspects=0.2, log_lines=3).write(open_store(str(folder)))
    write_report(open_store(str(folder)), "synthetic")
    return folder / "runs/synthetic/report/report.html"


@pytest.fixture
def opened(tab: Tab, page: Path) -> Iterator[Tab]:
    """The page at its beginning, whatever a test before this one chose."""
    tab.size(1400)
    tab.open("about:blank")
    tab.open(page.as_uri())
    yield tab
    assert tab.messages == []


def query(tab: Tab) -> dict[str, list[str]]:
    return parse_qs(str(tab.value("location.hash")).removeprefix("#units").removeprefix("?"))


def column(tab: Tab, place: int) -> list[Any]:
    cells = f"e.rows[0].cells[{place}]"
    return list(tab.value(f"{SHOWN}.map(e => {cells}.dataset.v ? +{cells}.dataset.v : {cells}.textContent)"))


def reopened(tab: Tab) -> list[Any]:
    """What is shown where somebody else opens the same address."""
    address = tab.value("location.href")
    tab.open("about:blank")
    tab.open(address)
    return column(tab, 0)


def test_table_sorts_in_three_states(opened: Tab) -> None:
    planned = column(opened, 0)
    opened.click("[data-name=time] button")
    times = [time for time in column(opened, 6) if time != ""]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) > 10
    assert opened.value("document.querySelector('[data-name=time]').ariaSort") == "descending"
    assert query(opened) == {"sort": ["-time"]}
    assert reopened(opened) != planned
    opened.click("[data-name=time] button")
    assert column(opened, 6)[: len(times)] == sorted(times)  # what has none is last either way
    opened.click("[data-name=time] button")
    assert column(opened, 0) == planned
    assert opened.value("location.hash") == "#units"


def test_table_searches_ids_and_titles(opened: Tab) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("django rows")
    opened.settle()
    names = column(opened, 0)
    assert 0 < len(names) < 80
    assert all("django" in name and "rows" in name for name in names)
    assert opened.value("document.querySelector('#f-count').textContent") == f"{len(names)} of 80 units"
    assert query(opened) == {"q": ["django rows"]}
    assert reopened(opened) == names
    opened.page.focus("#f-search input")
    opened.page.keyboard.press("Escape")
    opened.settle()
    assert len(column(opened, 0)) == 80


def test_table_keeps_filters_in_address(opened: Tab) -> None:
    opened.click("label[for=f-unresolved]")
    opened.page.select_option("#f-attempt", "2")
    opened.page.select_option("#f-stop", "finished")
    opened.settle()
    names = column(opened, 0)
    assert 0 < len(names) < 20
    assert set(column(opened, 1)) == {"2"}
    assert query(opened) == {"outcome": ["unresolved"], "attempt": ["2"], "stop": ["finished"]}
    assert reopened(opened) == names
    opened.click("label[for=f-suspect]")
    assert query(opened) == {"suspect": ["yes"], "attempt": ["2"], "stop": ["finished"]}


def test_table_filters_by_cell(opened: Tab) -> None:
    cells = "document.querySelectorAll('.crossed td:not(.all) a')"
    for place in (0, opened.value(f"{cells}.length") - 1):
        number = int(opened.value(f"{cells}[{place}].textContent"))
        opened.value(f"{cells}[{place}].click()")
        opened.settle()
        assert len(column(opened, 0)) == number
        assert set(query(opened)) == {"outcome", "stop"}
    total = sum(int(text) for text in opened.value(f"[...{cells}].map(e => e.textContent)"))
    opened.value("location.hash = '#units'")
    opened.settle()
    assert total == opened.value("document.querySelectorAll('.u:is(.s0, .s1, .s2, .s3, .s4, .s5, .s6, .s7)').length")


def test_table_ignores_unknown_filters(tab: Tab, page: Path) -> None:
    tab.open("about:blank")
    tab.open(f"{page.as_uri()}#units?outcome=nothing&stop=%22%5D&repo=a/b&attempt=9&sort=-weight")
    assert len(column(tab, 0)) == 80
    assert tab.messages == []


def test_table_keys_move_between_rows(opened: Tab) -> None:
    opened.click("label[for=f-unresolved]")
    names = opened.value(f"{SHOWN}.map(e => e.id)")
    where = "document.activeElement.closest('.u')?.id"
    for key, place in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        opened.page.keyboard.press(key)
        assert opened.value(where) == names[place]
    opened.page.keyboard.press("Shift+Tab")
    opened.page.keyboard.press("Enter")  # the arrow before the name unfolds the row
    assert opened.value("document.activeElement.closest('.u').querySelector('.more').getClientRects().length") == 1


def test_table_works_without_scripts(tab: Tab, page: Path) -> None:
    browser = tab.page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as context:
        bare = Tab(context.new_page())
        bare.open(page.as_uri())
        assert len(column(bare, 0)) == 80
        assert bare.value("document.querySelector('#f-search').getClientRects().length") == 0
        bare.click("label[for=f-unresolved]")
        assert 0 < len(column(bare, 0)) < 80
        assert bare.value("document.querySelector('.crossed a').hash") == "#units"
