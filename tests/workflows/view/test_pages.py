"""The viewer's pages over HTTP: filters, files, links and refusals; their contents are in the golden pages."""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import urlencode, urljoin

from swe_argo.steps.contracts.data import Instance, Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.records import read_record
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.view.server import Address, viewing

OWN_SCRIPTS = {'<script src="/static/view.js" defer>', '<script src="/static/expand.js">'}


def rows(html: str) -> list[str]:
    """Return the first link of each table row."""
    return [unescape(path) for path in re.findall(r'<tr data-row.*?<a href="([^"]+)"', html, re.DOTALL)]


QUERIES = {
    "q=nightly": ["nightly-3", "nightly-2", "nightly-1"],
    "q=NIGHTLY-2": ["nightly-2"],
    "agent=mini-swe-agent": ["other"],
    "state=no+report": ["half-done"],
    "tag=team%2Fa": ["other"],
    "tag=paper&q=team": ["other"],
    "tag=team": [],
    "q=nightly&sort=run": ["nightly-1", "nightly-2", "nightly-3"],
    "q=nightly&sort=-run": ["nightly-3", "nightly-2", "nightly-1"],
    "q=no+such+run": [],
}


def test_view_filters_runs_by_address(viewer: Address) -> None:
    listed = {query: rows(viewer.get(f"/?{query}").text) for query in QUERIES}
    assert listed == {query: [f"/runs/{name}" for name in names] for query, names in QUERIES.items()}
    assert len(rows(viewer.get("/?sort=-nothing&page=99999999999&colour=red").text)) == 5, "unknown values are ignored"


def test_view_units_follow_query(viewer: Address) -> None:
    page = viewer.get("/runs/other?attempt=2&sort=-time", X_Part="table").text
    assert len(rows(page)) == 5
    assert all(path.endswith("/2") for path in rows(page))
    assert "<html" not in page


def test_view_finds_units_by_issue_title(viewer: Address, store: Store) -> None:
    units = read_record(store, Plan, "nightly-1").units
    issue = Instance.from_bytes(store.get(key(Instance, "nightly-1", units[0].instance_id)))
    title = issue.problem_statement.splitlines()[0]
    page = viewer.get(f"/runs/nightly-1?{urlencode({'q': title.upper()})}", X_Part="table").text
    assert f"/runs/nightly-1/units/{units[0].instance_id}/1" in rows(page)
    assert len(rows(page)) < len(units)
    assert page.count(f'<small class="roomy">{escape(title)}</small>') == len(rows(page))


def test_view_unit_has_page_and_files(viewer: Address) -> None:
    for path in rows(viewer.get("/runs/other").text)[:4]:
        page = viewer.get(path)
        assert page.status == 200
        assert page.text.count("<h1>") == 1
        for link in re.findall(r'<a href="(/runs/other/files/units/[^"]+)"', page.text):
            answer = viewer.get(unescape(link))
            assert answer.status == 200, link
            assert not answer.headers["content-type"].startswith("text/html")


def links(html: str) -> set[str]:
    return {unescape(path).partition("#")[0] for path in re.findall(r'<a [^>]*?href="([^"#]+)', html)}


def test_view_links_are_valid(viewer: Address) -> None:
    paths = ("/", "/runs/other", "/runs/half-done", "/trend?run=nightly-1", "/compare?run=nightly-1&run=other")
    targets = {urljoin(path, link) for path in paths for link in links(viewer.get(path).text)}
    assert len(targets) > 50
    assert [link for link in targets if viewer.get(link).status != 200] == []


def test_view_lists_attempts_in_order(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    Synthetic("many", 1, 11).write(store)
    with viewing(store) as address:
        assert "official" not in "".join(links(address.get("/runs/many").text)), "there is none yet"
        (choices,) = re.findall(r'<select name="attempt">(.*?)</select>', address.get("/runs/many").text)
    assert re.findall(r'value="(\d+)"', choices) == [str(number) for number in range(1, 12)]


def test_view_names_unreadable_run(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), create=True)
    for name in ("whole", "torn"):
        Synthetic(name, 2).write(store)
    store.put(key(RunFile, "torn"), b"{")
    with viewing(store) as address:
        assert sorted(rows(address.get("/").text)) == ["/runs/torn", "/runs/whole"]
        for path in ("/runs/torn", "/trend?run=torn", "/compare?run=torn&run=whole"):
            page = address.get(path)
            assert (path, page.status, "run.json" in page.text) == (path, 404, True)


def test_view_escapes_hostile_texts(viewer: Address) -> None:
    for path in ("/", "/runs/other", rows(viewer.get("/runs/other").text)[0]):
        page = viewer.get(path).text
        assert "lab/&lt;i&gt;model-2" in page
        assert set(re.findall(r"<script[^>]*>", page)) <= OWN_SCRIPTS


MISSING = (
    "nope",
    "..%2f..%2fetc",
    "other/units/nope/1",
    f"other/units/nope/{'9' * 5000}",
    "other/units/nope/-1",
    f"other/files/units/nope/{'9' * 5000}/solve.json",
    "other/files/report/../../run.json",
    "other/files/report/%2e%2e/run.json",
    "other/files/units/..%2f..%2f/1/run.json",
)


def test_view_refuses_missing_paths(viewer: Address) -> None:
    assert {path[:60]: viewer.get(f"/runs/{path}").status for path in MISSING} == {path[:60]: 404 for path in MISSING}


def test_view_serves_no_secrets(viewer: Address, store: Store) -> None:
    unit = read_record(store, Plan, "nightly-1").units[0]
    for name in ("run.json", "plan.json", f"instances/{unit.instance_id}/answer.json"):
        for folder in ("files", "files/report", f"files/units/{unit.instance_id}/1"):
            assert viewer.get(f"/runs/nightly-1/{folder}/{name}").status == 404
