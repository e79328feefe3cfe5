"""The compare page and the trend page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.comparison.view import view_comparison
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from swe_argo.workflows.api.store import RunStore
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.command import call
from tests.workflows.view.server import Address, viewing


def cells(html: str) -> list[list[int]]:
    """Return the figures of the table of agreement."""
    table = re.findall(r'<table class="matrix">.*?</table>', html, re.DOTALL)[0]
    return [[int(number) for number in re.findall(r"<b[^>]*>([\d,]+)</b>", row)] for row in table.split("<tr>")[2:]]


def test_compare_page_equals_command(viewer: Address, store: Store) -> None:
    a, b = "nightly-2", "nightly-1"
    page = unescape(viewer.get(f"/compare?run={a}&run={b}").text)
    compared = RunStore(store).run(b).compare(RunStore(store).run(a))
    view = view_comparison(compared)
    assert f"Compared with {a}" in page
    assert f"{b} minus {a}: " in view.headline
    assert view.headline in page
    assert view.headline in call("compare", a, b, "--store", store.url).stdout
    for name, moved in (("Gained", compared.gained), ("Lost", compared.lost)):
        assert (f"<h3>{name}, {len(moved)}</h3>" in page) == bool(moved)
    first, second = cells(page)
    assert (first[1], second[0]) == (len(compared.lost), len(compared.gained))
    assert len(compared.gained) + len(compared.lost) > 0


def test_compare_page_refuses_bad_query(viewer: Address) -> None:
    queries = ("", "run=nightly-1", "run=nightly-1&run=nightly-1", "run=nightly-1&run=nope")
    paths = [*(f"/compare?{query}" for query in queries), "/trend?run=nope"]
    assert {viewer.get(path).status for path in paths} == {404}


def test_view_hides_invalid_scores(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    for name, mix in (("night-1", {"resolved": 1.0}), ("night-2", {"resolved": 0.1, "failed": 0.5, "not_run": 0.4})):
        Synthetic(name, 12, seed=5, mix=mix, created_at=f"2026-11-1{name[-1]}T22:00:00Z", log_lines=1).write(store)
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
    listed = call("runs", "--store", store.url).stdout
    assert re.search(r"no score +night-2", listed)
    assert re.search(r"12/12 +night-1", listed)
