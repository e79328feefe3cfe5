"""Headless Chromium over its DevTools protocol: what a page shows, asks for and says."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((found for found in map(shutil.which, BROWSERS) if found), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"needs a browser: one of {', '.join(BROWSERS)}")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
Scheme = Literal["light", "dark"]


@dataclass
class Tab:
    """One page in the browser."""

    socket: Any
    number: int = 0
    messages: list[str] = field(default_factory=list)
    """What the page wrote to the console, and what the browser complained of."""
    requests: list[str] = field(default_factory=list)
    """Every address asked for."""

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is noted."""
        self.number += 1
        wanted = self.number
        self.socket.send(json.dumps({"id": wanted, "method": method, "params": arguments}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == wanted:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                answer: dict[str, Any] = message["result"]
                return answer
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, said = message.get("method", ""), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(said["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(said["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{said['entry']['level']}: {said['entry']['text']}")

    def size(self, width: int, height: int = 900) -> None:
        """The size of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, scheme: Scheme) -> None:
        """What the person prefers."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def print_view(self) -> None:
        """Lay the page out as for paper."""
        self.call("Emulation.setEmulatedMedia", media="print")

    def open(self, url: str) -> None:
        """Load a page and wait until it is drawn."""
        self.messages.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 60
        while self.value("document.readyState") != "complete" or self.value("location.href") == "about:blank":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} did not load")
            time.sleep(0.02)
        self.settle()

    def settle(self) -> None:
        """Wait until a frame is drawn. Without the page's help: where scripts are forbidden its timers stand still."""
        self.call("Page.captureScreenshot", clip={"x": 0, "y": 0, "width": 1, "height": 1, "scale": 1})

    def value(self, expression: str) -> Any:
        """The value of an expression, evaluated beside the page (its own scripts may be forbidden)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """A real click of the mouse on the middle of an element."""
        place = self.value(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
            f" return [r.x + Math.min(r.width / 2, 60), r.y + r.height / 2]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        self.settle()

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.value("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextmanager
def browser() -> Iterator[Tab]:
    """A fresh browser with one empty tab; it is gone afterwards."""
    import websocket

    assert BROWSER is not None
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [BROWSER, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        socket = None
        try:
            port = _port(process, Path(profile) / "DevToolsActivePort")
            socket = websocket.create_connection(_address(port), timeout=60, suppress_origin=True, http_no_proxy=["*"])
            tab = Tab(socket)
            for domain in ("Page", "Runtime", "Network", "Log"):
                tab.call(f"{domain}.enable")
            yield tab
        finally:
            if socket is not None:
                socket.close()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(process: subprocess.Popen[bytes], file: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{BROWSER} ended at once with exit code {process.returncode}")
        if file.exists() and (text := file.read_text()).count("\n"):
            return int(text.split("\n")[0])
        time.sleep(0.05)
    raise TimeoutError(f"{BROWSER} did not open its debugging port")


def _address(port: int) -> str:
    from urllib.request import ProxyHandler, build_opener

    direct = build_opener(ProxyHandler({}))  # a proxy of the environment is not for this machine
    with direct.open(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
        tabs = json.load(answer)
    return next(str(tab["webSocketDebuggerUrl"]) for tab in tabs if tab["type"] == "page")
