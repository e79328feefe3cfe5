"""Checks of every page: quiet, no wider than the window, readable, and the same under the header that Argo sends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.chromium import Scheme, Tab
from tests.http_server import serve

# What Argo's artifact server sends (argo-workflows, server/artifacts/artifact_server.go).
ARGO_CSP = "sandbox; default-src 'none'; img-src 'self'; style-src 'self' 'unsafe-inline'"
UNFOLD = "document.querySelectorAll('details').forEach((d, n) => { if (n < 60) d.open = true })"
QUIET_WINDOWS: tuple[tuple[int, Scheme], ...] = ((360, "light"), (768, "light"), (1280, "dark"), (1400, "dark"))
LAYOUT = """[...document.querySelectorAll('body *')].map(e => {
  const r = e.getBoundingClientRect(), s = getComputedStyle(e);
  return [e.tagName, r.x, r.y, r.width, r.height, s.color, s.backgroundColor, s.fill, s.display].join(' ')
}).join('\\n')"""
CONTRAST = """(() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const linear = v => v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = c => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2]);
  const paper = e => { let stack = [];
    for (; e; e = e.parentElement) stack.push(parse(getComputedStyle(e).backgroundColor));
    return stack.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]) };
  const seen = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.getClientRects().length || e.closest('title')) continue;
    const s = getComputedStyle(e), below = paper(e), ink = over(parse(e.closest('svg') ? s.fill : s.color), below);
    const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05), name = e.tagName + '.' + (e.getAttribute('class') || '');
    if (!(name in seen) || seen[name] > ratio) seen[name] = ratio;
  }
  return seen })()"""


def check_quiet(tab: Tab, page: Path) -> None:
    """Check that the page loads nothing, logs nothing, and fits every window when unfolded."""
    tab.size(360)
    tab.open(page.as_uri())
    tab.value(UNFOLD)
    for width, scheme in QUIET_WINDOWS:
        tab.page.emulate_media(color_scheme=scheme)
        tab.size(width)
        tab.settle()
        assert tab.sideways() <= 0, width
    assert tab.messages == []
    assert tab.requests == [page.as_uri()]
    assert tab.value("document.querySelectorAll('h1').length") == 1


def check_contrast(tab: Tab, page: Path, scheme: Scheme, kinds: int) -> None:
    """Check that all text has a contrast of 4.5 or more (WCAG 2.2, 1.4.3), in more than ``kinds`` kinds of elements."""
    tab.size(1400)
    tab.page.emulate_media(color_scheme=scheme)
    tab.open(page.as_uri())
    tab.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    ratios: dict[str, float] = tab.value(CONTRAST)
    assert len(ratios) > kinds
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def check_served_by_argo(tab: Tab, page: Path) -> None:
    """Check that the page looks as without scripts where Argo forbids everything but its own styles."""
    tab.size(1400)
    tab.page.emulate_media(color_scheme="light")
    plain, layout = _without_scripts(tab, page)
    with _served(page.parent) as address:
        tab.open(f"{address}/{page.name}")
        assert tab.picture() == plain
        assert tab.value(LAYOUT) == layout
        assert [line for line in tab.messages if "favicon" not in line and "'allow-scripts'" not in line] == []
        urls = [url for url in tab.requests if not url.endswith("/favicon.ico")]  # the browser asks for it by itself
        assert urls == [f"{address}/{page.name}"]


def check_words(tab: Tab, page: Path) -> None:
    """Check that drawings have titles, table headings their scope, and the page its language."""
    tab.open(page.as_uri())
    drawings = "[...document.querySelectorAll('svg:not([aria-hidden], svg svg)')]"
    assert tab.value(f"{drawings}.filter(e => !e.querySelector('title')?.textContent).length") == 0
    assert tab.value("document.documentElement.lang") == "en"
    assert tab.value("document.querySelectorAll('th:not([scope])').length") == 0


def _without_scripts(tab: Tab, page: Path) -> tuple[bytes, str]:
    """Return picture and layout in the same browser, in a window without scripts."""
    browser = tab.page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False, color_scheme="light") as context:
        bare = Tab(context.new_page())
        bare.size(1400)
        bare.open(page.as_uri())
        return bare.picture(), bare.value(LAYOUT)


def _served(folder: Path) -> AbstractContextManager[str]:
    """Serve a folder with the header that Argo sends with every artifact."""

    class Argo(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def end_headers(self) -> None:
            self.send_header("Content-Security-Policy", ARGO_CSP)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Drop the line, which would be printed among the tests."""

    return serve(Argo)
