"""A store that takes its time: who looks is told how far it is, and shown what there was before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.store import Store, open_store
from swe_argo.workflows.view.freshness import NotReadYetError, Reread
from swe_argo.workflows.view.run_states import RunState, _CachedRun
from tests.chromium import browser, needs_browser
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import wait_for
from tests.workflows.view.server import viewing


class Slow:
    """Something to read, which comes when it is told to."""

    def __init__(self) -> None:
        self.value: str | Exception = "first"
        self.go = threading.Event()
        self.reads = 0

    def read(self) -> str:
        self.reads += 1
        self.go.wait()
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.fixture
def slow() -> Iterator[Slow]:
    reader = Slow()
    yield reader
    reader.go.set()


def watched(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> Reread[str]:
    monkeypatch.setattr(Reread, "keep_s", lambda *_: 0.0)

    def progress() -> str:
        wait_for(lambda: slow.reads)  # a busy machine begins to read later than somebody has no patience any more
        return f"{slow.reads} of 9 units"

    return Reread(slow.read, 5, patience_s=0.01, progress=progress)


def test_reread_reports_progress(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    reread = watched(slow, monkeypatch)
    for _ in range(2):
        with pytest.raises(NotReadYetError, match="1 of 9 units"):
            reread.read()
    slow.go.set()
    assert reread.read(whole=True) == "first"
    assert slow.reads == 1


def test_reread_returns_previous_value(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    reread = watched(slow, monkeypatch)
    slow.go.set()
    assert reread.read(whole=True) == "first"
    slow.go.clear()
    slow.value = "second"
    assert reread.read() == "first"
    slow.go.set()
    wait_for(lambda: reread.read() == "second")


def test_reread_discards_old_value(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    reread = watched(slow, monkeypatch)
    with pytest.raises(NotReadYetError):
        reread.read()
    slow.go.set()
    wait_for(lambda: reread._value == "first")
    slow.value = "second"
    assert reread.read(whole=True) == "second"


def test_reread_raises_late_failure(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    reread = watched(slow, monkeypatch)
    slow.go.set()
    assert reread.read(whole=True) == "first"
    slow.go.clear()
    slow.value = InfraError(FailureClass.STORAGE, "the store is gone")
    assert reread.read() == "first"
    slow.go.set()
    with pytest.raises(InfraError, match="is gone"):
        wait_for(lambda: reread.read() != "first")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    new_store = open_store(str(tmp_path / "store"), create=True)
    Synthetic("r", 3).write(new_store)
    return new_store


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """When runs may be read."""
    go, read = threading.Event(), _CachedRun._read

    def read_then(run: _CachedRun) -> RunState:
        go.wait()
        return read(run)

    monkeypatch.setattr(_CachedRun, "_read", read_then)
    yield go
    go.set()


def test_view_run_page_announces_reading(store: Store, go: threading.Event) -> None:
    with viewing(store, patience_s=0.01) as address:
        waiting = address.get("/runs/r")
        assert (waiting.status, 'data-again="1"' in waiting.text) == (202, True)
        assert "Reading the store</h1>" in waiting.text
        go.set()
        assert "<html" not in address.get("/runs/r", x_part="table").text
        assert "Every unit</h2>" in address.get("/runs/r").text


@needs_browser
@pytest.mark.browser
def test_view_page_refreshes_itself(store: Store, go: threading.Event) -> None:
    with viewing(store, patience_s=0.01) as address, browser() as tab:
        tab.open(f"{address.url}/runs/r")
        assert tab.page.inner_text("h1") == "Reading the store"
        go.set()
        tab.page.wait_for_selector("#units", timeout=60_000)
        assert tab.messages == []
