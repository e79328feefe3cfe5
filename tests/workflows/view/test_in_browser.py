"""The viewer in Chromium: keys, addresses, layout, contrast and an empty console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.chromium import Scheme, Tab, browser, needs_browser
from tests.steps.reports.page_checks import CONTRAST
from tests.workflows.view.server import Address

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [needs_browser, pytest.mark.browser]
PAGES = (
    "/",
    "/runs/other",
    "/runs/half-done",
    "/compare?run=nightly-1&run=nightly-2&run=other",
    "/trend?run=nightly-1",
)
SELECTED = "document.querySelector('[aria-selected=true] a[href], [aria-current=true] a[href]')?.getAttribute('href')"


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


def rows(tab: Tab, *, number: int) -> list[str]:
    """Return the names in the table as soon as it has ``number`` rows."""
    from playwright.sync_api import expect

    # Not wait_for_function: it evaluates text again and again, which the page's policy forbids.
    expect(tab.page.locator("#table [data-row]")).to_have_count(number, timeout=60_000)
    names: list[str] = tab.value("[...document.querySelectorAll('#table [data-row] th a')].map(a => a.innerText)")
    return names


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_view_pages_fit_and_are_readable(tab: Tab, viewer: Address, scheme: Scheme) -> None:
    tab.page.emulate_media(color_scheme=scheme)
    tab.size(1280)
    tab.open(f"{viewer.url}/runs/other")
    unit = tab.value("document.querySelector('#table [data-row] a').getAttribute('href')")
    for path in (*PAGES, unit):
        for width in (390, 768, 2000, 1280) if scheme == "light" else (1280,):
            tab.size(width)
            tab.open(viewer.url + path)
            assert (path, width, tab.sideways(), tab.messages) == (path, width, 0, [])
        assert all(request.startswith(viewer.url) for request in tab.requests)
        faint = {name: ratio for name, ratio in tab.value(CONTRAST).items() if ratio < 4.5}
        assert (path, faint) == (path, {})


def test_view_filter_is_kept_in_address(tab: Tab, viewer: Address) -> None:
    order = "[...document.querySelectorAll('#table th[scope=col][aria-sort]')].map(e => e.getAttribute('aria-sort'))"
    tab.open(viewer.url)
    assert set(tab.value(order)) == {"none"}
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("nightly-")
    assert rows(tab, number=3) == ["nightly-3", "nightly-2", "nightly-1"]
    assert tab.page.inner_text("form [role=status][aria-live=polite]") == "3 of 5 runs"
    tab.page.wait_for_url("**/?q=nightly-")
    tab.page.keyboard.press("Escape")
    tab.click("th >> text=Run")
    tab.page.wait_for_url("**/?q=nightly-&sort=run")
    assert rows(tab, number=3)[0] == "nightly-1"
    assert tab.value(order).count("ascending") == 1
    tab.open(tab.page.url)
    assert tab.page.input_value("[type=search]") == "nightly-"
    assert rows(tab, number=3)[0] == "nightly-1"


def test_view_refresh_keeps_filter(tab: Tab, viewer: Address) -> None:
    tab.open(viewer.url)
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    tab.page.route(lambda url: url == f"{viewer.url}/", hold)
    try:
        tab.value("void (window.going = refresh())")
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("nightly-")
        assert len(rows(tab, number=3)) == 3
        request, *_ = routes  # a slow machine may ask again
        request.continue_()
        tab.page.evaluate("window.going")
        assert tab.value("document.querySelectorAll('#table [data-row]').length") == 3
    finally:
        tab.page.unroute_all()


def test_view_shows_lost_server(tab: Tab, viewer: Address) -> None:
    tab.open(f"{viewer.url}/runs/half-done")
    live_text = "document.querySelector('.live').textContent"
    assert tab.value(live_text) == "live"
    for gone in (lambda route: route.abort(), lambda route: route.fulfill(status=503)):
        tab.page.route(f"{viewer.url}/runs/half-done", gone)
        tab.page.evaluate("refresh()")
        assert tab.value(live_text) == "no answer"
        tab.page.unroute_all()
        tab.page.evaluate("refresh()")
        assert tab.value(live_text) == "live"


def test_view_outcome_cell_links_to_rows(tab: Tab, viewer: Address) -> None:
    tab.size(1280)
    tab.open(f"{viewer.url}/runs/other")
    cell = tab.page.locator("main section a[href*='outcome=']").first
    with tab.page.expect_navigation():
        cell.click()
    assert "outcome=" in tab.page.url
    assert tab.value("document.querySelector('#units').getBoundingClientRect().top < innerHeight / 2")


def test_view_keys_move_between_rows(tab: Tab, viewer: Address) -> None:
    tab.open(f"{viewer.url}/runs/half-done")
    for _ in range(3):
        tab.page.keyboard.press("j")
    tab.page.keyboard.press("k")
    assert tab.value(SELECTED) == tab.value("document.querySelectorAll('[data-row] a')[1].getAttribute('href')")
    tab.page.keyboard.press("e")
    wrong = tab.value(SELECTED)
    assert tab.value("document.querySelector('[aria-selected=true]').matches('[data-wrong]')")
    with tab.page.expect_navigation():
        tab.page.keyboard.press("Enter")
    assert tab.page.url == viewer.url + wrong
    with tab.page.expect_navigation():
        tab.page.keyboard.press("u")
    assert tab.page.url == f"{viewer.url}/runs/half-done"


def test_view_compares_marked_runs(tab: Tab, viewer: Address) -> None:
    tab.open(f"{viewer.url}/?q=nightly-1")
    for key in "jx":
        tab.page.keyboard.press(key)
    tab.page.fill("[type=search]", "nightly-2")
    tab.page.check("[type=checkbox][value=nightly-2]")
    with tab.page.expect_navigation():
        tab.page.click("text=Compare the marked runs")
    assert tab.page.url == f"{viewer.url}/compare?run=nightly-1&run=nightly-2"
    assert tab.value("document.querySelector('h1').innerText") == "2 runs compared"


def test_view_filters_without_scripts(tab: Tab, viewer: Address) -> None:
    chromium = tab.page.context.browser
    assert chromium is not None
    with chromium.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(viewer.url)
        page.select_option("[name=agent]", "mini-swe-agent")
        with page.expect_navigation():
            page.click("text=Show")
        assert "agent=mini-swe-agent" in page.url
        assert page.locator("#table [data-row]").count() == 1
