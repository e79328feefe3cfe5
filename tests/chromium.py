"""The Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"needs a browser: one of {', '.join(BROWSERS)}")

Scheme = Literal["light", "dark"]


class Tab:
    """One page in the browser."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.messages: list[str] = []
        """Console messages and errors of the page."""
        self.requests: list[str] = []
        """Requested addresses."""
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def size(self, width: int, height: int = 900) -> None:
        """Set the size of the window, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})

    def open(self, url: str) -> None:
        """Load a page and wait until it is drawn."""
        self.messages.clear()
        self.requests.clear()
        self.page.goto(url)
        self.settle()

    def settle(self) -> None:
        """Wait until a frame is drawn. Without the page's help: where scripts are forbidden its timers stand still."""
        self.page.screenshot(clip={"x": 0, "y": 0, "width": 1, "height": 1})

    def value(self, expression: str) -> Any:
        """Return the value of an expression, evaluated beside the page (its own scripts may be forbidden)."""
        return self.page.evaluate(expression)

    def click(self, selector: str) -> None:
        """Click on an element with the mouse."""
        self.page.click(selector)
        self.settle()

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the window, or of the whole page."""
        return self.page.screenshot(full_page=whole)

    def sideways(self) -> int:
        """Return the number of pixels by which the page is wider than the window."""
        return int(self.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextmanager
def browser() -> Iterator[Tab]:
    """Start a fresh browser with one empty tab."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=BROWSER) as chromium:
        yield Tab(chromium.new_page())
