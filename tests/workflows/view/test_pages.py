"""The viewer's pages over HTTP: what they say, and that their addresses are all there is of their state."""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import urlencode, urljoin

import pytest

from swe_argo.steps.contracts.data import Instance, Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.runs import record_of
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.view.server import Address, viewing

PAIR = "run=nightly-1&run=other"
OWN_SCRIPTS = {'<script src="/static/view.js" defer>', '<script src="/static/expand.js">'}


def rows(html: str) -> list[str]:
    """The first link of each line of a table."""
    return [unescape(path) for path in re.findall(r'<tr data-row.*?<a href="([^"]+)"', html, re.DOTALL)]


def test_view_lists_runs_newest_first(viewer: Address) -> None:
    listed = rows(viewer.get("/").text)
    assert len(listed) == 5
    nights = [path for path in listed if "nightly" in path]
    assert nights == ["/runs/nightly-3", "/runs/nightly-2", "/runs/nightly-1"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=NIGHTLY-2", ["/runs/nightly-2"]),
        ("agent=mini-swe-agent", ["/runs/other"]),
        ("state=no+report", ["/runs/half-done"]),
        ("tag=team%2Fa", ["/runs/other"]),
        ("tag=paper&q=team", ["/runs/other"]),
        ("tag=team", []),
        ("q=nightly&sort=run", ["/runs/nightly-1", "/runs/nightly-2", "/runs/nightly-3"]),
        ("q=nightly&sort=-run", ["/runs/nightly-3", "/runs/nightly-2", "/runs/nightly-1"]),
        ("q=no+such+run", []),
    ],
)
def test_view_filters_runs_by_address(viewer: Address, query: str, expected: list[str]) -> None:
    assert rows(viewer.get(f"/?{query}").text) == expected


def test_headline_counts_all_attempts(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    Synthetic("thrice", 8, 3, mix={"resolved": 1, "unresolved": 1}, log_lines=1).write(store)
    headline = write_report(store, "thrice").headline
    with viewing(store) as address:
        runs, run = (address.get(path).text.replace("&nbsp;", " ") for path in ("/", "/runs/thrice"))
    share = f"{100 * headline.resolved / 24:.1f} %"
    assert f'<span class="figure">{share}</span> <span class="of">pass@1 over 3 attempts at 8 issues</span>' in run
    assert f"<b>{share}</b> <small>{headline.resolved} / 24 attempts</small>" in runs


def test_view_filter_shows_chosen_value(viewer: Address) -> None:
    assert re.search(r'<option value="replay" selected>', viewer.get("/?q=nightly&agent=replay").text)
    (resolved,) = re.findall(r'<option value="[^"]+" selected>', viewer.get("/runs/other?suspect=no").text)
    assert resolved == '<option value="no" selected>'


def test_view_shows_and_filters_tags(viewer: Address) -> None:
    page = viewer.get("/").text
    assert "<small>team/a, paper</small>" in page
    (choices,) = re.findall(r'<select name="tag">(.*?)</select>', page)
    assert re.findall(r'<option value="([^"]*)"', choices) == ["", "paper", "team/a"]
    assert "<dt>Tags</dt><dd>team/a and paper</dd>" in viewer.get("/runs/other").text
    assert "<dt>Tags</dt>" not in viewer.get("/runs/nightly-1").text


def test_view_ignores_unknown_values(viewer: Address) -> None:
    assert len(rows(viewer.get("/?sort=-nothing&page=99999999999&colour=red").text)) == 5


def test_view_run_page_contains_report(viewer: Address, store: Store) -> None:
    page, report = viewer.get("/runs/nightly-1").text, store.get("runs/nightly-1/report/report.html").decode()
    for heading in re.findall(r"<h2 id=.*?</h2>", report):
        assert heading in page
    assert re.findall(r'<p class="rate">.*', report)[0] in page
    assert len(rows(page)) == 6


def test_view_units_follow_query(viewer: Address) -> None:
    page = viewer.get("/runs/other?attempt=2&sort=-time", X_Part="table").text
    assert len(rows(page)) == 5
    assert all(path.endswith("/2") for path in rows(page))
    assert "<html" not in page


def test_view_finds_units_by_issue_title(viewer: Address, store: Store) -> None:
    units = record_of(store, Plan, "nightly-1").units
    issue = Instance.from_bytes(store.get(key(Instance, "nightly-1", units[0].instance_id)))
    title = issue.problem_statement.splitlines()[0]
    page = viewer.get(f"/runs/nightly-1?{urlencode({'q': title.upper()})}", X_Part="table").text
    assert f"/runs/nightly-1/units/{units[0].instance_id}/1" in rows(page)
    assert len(rows(page)) < len(units)
    assert page.count(f'<small class="roomy">{escape(title)}</small>') == len(rows(page))


def test_view_shows_run_without_report(viewer: Address, store: Store) -> None:
    page = viewer.get("/runs/half-done").text
    assert "it has no report yet" in page
    assert re.search(r"resolved of \d graded so far, of 8 issues in&nbsp;all", page)
    assert "<dt>Sandboxes</dt><dd>none" not in page
    assert len(rows(page)) == len(record_of(store, Plan, "half-done").units)


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


@pytest.mark.parametrize("path", ["/", "/runs/other", "/runs/half-done", "/trend?run=nightly-1", f"/compare?{PAIR}"])
def test_view_links_are_valid(viewer: Address, path: str) -> None:
    targets = links(viewer.get(path).text)
    assert targets
    assert [link for link in targets if viewer.get(urljoin(path, link)).status != 200] == []


def test_view_unit_page_links_to_run(viewer: Address) -> None:
    page = viewer.get(rows(viewer.get("/runs/other").text)[0]).text
    assert '<span>/</span> <a href="/runs/other">other</a>' in page


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


@pytest.mark.parametrize(
    "path",
    [
        "/runs/nope",
        "/runs/..%2f..%2fetc",
        "/runs/other/units/nope/1",
        f"/runs/other/units/nope/{'9' * 5000}",
        "/runs/other/units/nope/-1",
        f"/runs/other/files/units/nope/{'9' * 5000}/solve.json",
        "/runs/other/files/report/../../run.json",
        "/runs/other/files/report/%2e%2e/run.json",
        "/runs/other/files/units/..%2f..%2f/1/run.json",
    ],
)
def test_view_refuses_missing_paths(viewer: Address, path: str) -> None:
    assert viewer.get(path).status == 404


def test_view_serves_no_secrets(viewer: Address, store: Store) -> None:
    unit = record_of(store, Plan, "nightly-1").units[0]
    for name in ("run.json", "plan.json", f"instances/{unit.instance_id}/answer.json"):
        for folder in ("files", "files/report", f"files/units/{unit.instance_id}/1"):
            assert viewer.get(f"/runs/nightly-1/{folder}/{name}").status == 404
