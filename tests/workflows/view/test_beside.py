"""Runs beside each other, and the runs of one spec over time."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.comparison.view import view_comparison
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.api.store import RunStore
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import swe_argo
from tests.workflows.view.conftest import NIGHTS
from tests.workflows.view.server import Address, viewing


def cells(html: str) -> list[list[int]]:
    """The figures of the table of agreement."""
    table = re.findall(r'<table class="matrix">.*?</table>', html, re.DOTALL)[0]
    return [[int(number) for number in re.findall(r"<b[^>]*>([\d,]+)</b>", row)] for row in table.split("<tr>")[2:]]


@pytest.mark.parametrize(("a", "b"), [("nightly-1", "nightly-2"), ("nightly-2", "nightly-1")])
def test_compare_page_equals_command(a: str, b: str, viewer: Address, store: Store) -> None:
    page = unescape(viewer.get(f"/compare?run={a}&run={b}").text)
    compared = RunStore(store).run(b).compare(RunStore(store).run(a))
    view = view_comparison(compared)
    assert f"Compared with {a}" in page
    assert f"{b} minus {a}: " in view.headline
    assert view.headline in page
    assert view.headline in swe_argo("compare", a, b, "--store", store.url).stdout
    for name, moved in (("Gained", compared.gained), ("Lost", compared.lost)):
        assert (f"<h3>{name}, {len(moved)}</h3>" in page) == bool(moved)
    first, second = cells(page)
    assert (first[1], second[0]) == (len(compared.lost), len(compared.gained))
    assert len(compared.gained) + len(compared.lost) > 0


def test_compare_page_has_cell_per_pair(viewer: Address, store: Store) -> None:
    page = viewer.get("/compare?run=nightly-1&run=nightly-2&run=nightly-3").text
    assert [len(row) for row in cells(page)] == [3, 3, 3]
    assert "/compare?run=nightly-3&amp;run=nightly-2" in page
    valid = [RunStore(store).run(name).summary.valid for name in NIGHTS]
    assert len(re.findall('class="run-dot', page)) == 2 * sum(valid) > 2


@pytest.mark.parametrize("query", ["", "run=nightly-1", "run=nightly-1&run=nightly-1", "run=nightly-1&run=nope"])
def test_compare_page_refuses_bad_query(viewer: Address, query: str) -> None:
    assert viewer.get(f"/compare?{query}").status == 404


def test_trend_marks_changed_inputs(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    changes = [
        {},
        {"versions": {"code": "new"}},
        {"versions": {"code": "new"}, "image_digests": {"a": "sha256:1"}},
        {"versions": {"code": "new"}, "image_digests": {"a": "sha256:2"}},
    ]
    for night, change in enumerate(changes):
        name = f"night-{night}"
        Synthetic(name, 2, seed=night, created_at=f"2026-11-1{night}T22:00:00Z").write(store)
        file = record_of(store, RunFile, name)
        store.put(key(RunFile, name), file.model_copy(update=change).to_bytes())
        write_report(store, name)
    Synthetic("another", 2, agent="mini-swe-agent").write(store)
    write_report(store, "another")
    with viewing(store) as address:
        page = address.get("/trend?run=night-2").text
        assert address.get("/trend?run=nope").status == 404
    assert re.findall(r'<th scope="row"><a href="/runs/([^"]+)"', page) == ["night-3", "night-2", "night-1", "night-0"]
    assert page.count('class="change"') == 2
    assert "changed: images" in page
    assert "changed: code" in page
    assert "Image a: sha256:1 → sha256:2" in page


@pytest.mark.parametrize("outcome", ["not_run", "failed"])
def test_view_hides_invalid_scores(outcome: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    for name, mix in (("night-1", {"resolved": 1.0}), ("night-2", {"resolved": 0.1, outcome: 0.9})):
        Synthetic(name, 20, seed=5, mix=mix, created_at=f"2026-11-1{name[-1]}T22:00:00Z").write(store)
        write_report(store, name)
    assert not Summary.from_bytes(store.get(key(Summary, "night-2"))).valid
    with viewing(store) as address:
        runs, trend, compared = (
            address.get(path).text for path in ("/", "/trend?run=night-1", "/compare?run=night-1&run=night-2")
        )
    assert runs.count('class="score"') == 1
    assert "no score: " in runs
    assert re.findall(r'<th scope="row"><a href="/runs/([^"]+)"', trend) == ["night-1"]
    assert compared.count('class="score"') == 1
    assert 'class="run-dot' not in compared
    listed = swe_argo("runs", "--store", store.url).stdout
    assert re.search(r"no score +night-2", listed)
    assert re.search(r"20/20 +night-1", listed)
