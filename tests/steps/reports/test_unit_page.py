"""Limits, links and escaping of pages, of units above all; the golden pages show their sections."""

from __future__ import annotations

import json
import posixpath
import re
from html.parser import HTMLParser

from swe_argo.steps.contracts.data import Answer, EgressHost, Instance, Patch, Unit
from swe_argo.steps.contracts.failure import Failure
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.training import held_out_run_of, run_of
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory, Usage
from swe_argo.steps.reports.parquet_bytes import read_parquet
from swe_argo.steps.reports.reading import ISSUE_CHARACTERS
from swe_argo.steps.reports.training.page import training_page_key, write_training_page
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store
from tests.steps.reports.synthetic import Synthetic
from tests.steps.reports.synthetic_training import HOSTILE_SPEC, SyntheticTraining
from tests.steps.reports.trajectories import trajectory

FOLDER = "runs/synthetic/report/"
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]")


class Page(HTMLParser):
    """The elements of a page, its anchors and its links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(html)
        self.close()
        self.text = " ".join(re.sub(r"<[^>]*>", " ", html.partition("</style>")[2]).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def write_unit(store: Store, **spec: object) -> Unit:
    spec = {"instances": 1, "mix": {"unresolved": 1}, "seed": 5, "agent": "r2egym", "log_lines": 5} | spec
    return Synthetic(**spec).write(store).units[0]  # type: ignore[arg-type]


def page(store: Store, unit: Unit) -> Page:
    write_report(store, "synthetic")
    return Page(store.get(f"{FOLDER}instances/{unit.instance_id}.{unit.attempt}.html").decode())


def write_trajectory(store: Store, unit: Unit, conversation: Trajectory) -> None:
    store.put(key(Trajectory, "synthetic", unit.instance_id, unit.attempt), conversation.to_bytes())


def write_failure(store: Store, unit: Unit, name: str, usage: Usage, **fields: object) -> str:
    """Store a failed try and return the folder of its files."""
    place = key(Failure, "synthetic", unit.instance_id, 1, name)
    values = {"step": "solve", "instance_id": unit.instance_id, "attempt": 1, "reason": "x", "exit_code": 75}
    values |= {"failure_class": "model", "occurred_at": "2026-11-21T00:00:00Z", "usage": usage}
    store.put(place, Failure.model_validate(values | fields).to_bytes())
    return place.removesuffix("failure.json")


def test_page_links_are_valid(store: Store) -> None:
    Synthetic(instances=10, attempts=2, agent="r2egym", turns=2, others=1, log_lines=5).write(store)
    write_report(store, "synthetic")
    SyntheticTraining(steps=1, every=1, reports=1).write(store)
    write_training_page(store, "grpo")
    names = {*store.keys("runs/"), *store.keys("trainings/")}
    pages = {name: Page(store.get(name).decode()) for name in names if name.endswith(".html")}
    links = set()
    for name, doc in pages.items():
        assert len(doc.ids) == len(set(doc.ids)), name
        for link in doc.links:
            file, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), file)) if file else name
            assert target in names or f"{target}/README.md" in names, (name, link)
            assert not anchor or anchor in pages[target].ids, (name, link)
            links.add((name, target))
    assert len(pages) > 30
    training, run = training_page_key("grpo"), "runs/{}/report/report.html"
    assert {(training, run.format(name("grpo", 1))) for name in (run_of, held_out_run_of)} <= links


def test_unit_page_cuts_long_issue(store: Store) -> None:
    unit = write_unit(store)
    place = key(Instance, "synthetic", unit.instance_id)
    issue = "Title\n\n" + "And so on.\n" * 5000
    instance = Instance.from_bytes(store.get(place))
    store.put(place, instance.model_copy(update={"problem_statement": issue}).to_bytes())
    doc = page(store, unit)
    assert doc.html.index('id="h-issue"') < doc.html.index('id="h-patch"') < doc.html.index('id="h-turns"')
    assert f"{len(issue) - ISSUE_CHARACTERS:,} more characters in instance.json" in doc.text
    assert "whole-issue" in doc.ids


def test_unit_page_marks_reference_patch(store: Store) -> None:
    unit = write_unit(store)
    patch = Patch.from_bytes(store.get(key(Patch, "synthetic", unit.instance_id, 1))).text
    answer = Answer(instance_id=unit.instance_id, source={"patch": patch})
    store.put(key(Answer, "synthetic", unit.instance_id), answer.to_bytes())
    assert "The patch above is identical to the reference patch." in page(store, unit).text


def test_unit_page_names_broken_trajectory(store: Store) -> None:
    unit = write_unit(store)
    store.put(key(Trajectory, "synthetic", unit.instance_id, 1), b'{"steps":[{"step_id":1,"mess')
    doc = page(store, unit)
    assert ("Patch" in doc.text, "Turn by" in doc.text) == (True, False)
    doubts = json.loads(store.get(f"{FOLDER}summary.json"))["doubts"]
    assert f"could not be read: runs/synthetic/units/{unit.instance_id}/1/trajectory.json" in " ".join(doubts)


def test_unit_without_files_has_no_page(store: Store) -> None:
    unit = write_unit(store, mix={"not_run": 1}, seed=2)
    write_report(store, "synthetic")
    assert f"{FOLDER}instances/{unit.instance_id}.1.html" not in store.keys(FOLDER)


def test_unit_page_shows_failed_tries(store: Store) -> None:
    unit = write_unit(store, mix={"failed": 1})
    fields = {"failure_class": "model_access", "exit_code": 64, "detail": "You exceeded your <b>quota</b>"}
    place = write_failure(store, unit, "try-9", Usage(calls=5, requests=6, prompt_tokens=7000), **fields)
    partial = trajectory((unit.instance_id, 1), turns=5, stop=StopReason.INTERRUPTED)
    store.put(f"{place}trajectory.json", partial.to_bytes())
    store.put(f"{place}step.log", b"a line")
    doc = page(store, unit)
    for text in ("Failed tries, 4", "fix that and start the same run again", "Progress: interrupted, 5 turns"):
        assert text in doc.text
    assert "You exceeded your &lt;b&gt;quota&lt;/b&gt;" in doc.html
    assert "f3-t7" in doc.ids
    tries = f"../../units/{unit.instance_id}/1/tries/try-9/"
    assert {f"{tries}failure.json", f"{tries}trajectory.json", f"{tries}step.log"} <= set(doc.links)


def test_unit_page_marks_missing_call(store: Store) -> None:
    unit = write_unit(store)
    whole = trajectory((unit.instance_id, 1), turns=2)
    no_call = {"tool_calls": None, "observation": None, "extra": {"malformed": "no_call"}}
    steps = [*whole.steps[:-1], whole.steps[-1].model_copy(update=no_call)]
    write_trajectory(store, unit, whole.model_copy(update={"steps": steps, "notes": "asked <twice>"}))
    doc = page(store, unit)
    assert doc.text.count("no valid tool call") == 1
    assert '<pre class="said">asked &lt;twice&gt;</pre>' in doc.html


def test_pages_escape_hostile_text(store: Store) -> None:
    spec = {"agent": "r2egym", "hostile": True, "turns": 6, "others": 1, "model": "<img src=x>"}
    Synthetic(instances=4, mix={"unresolved": 3, "failed": 1}, **spec).write(store)  # type: ignore[arg-type]
    write_report(store, "synthetic")
    SyntheticTraining(steps=3, spec=HOSTILE_SPEC).write(store)
    write_training_page(store, "grpo")
    names = [name for name in (*store.keys(FOLDER), training_page_key("grpo")) if name.endswith(".html")]
    assert len(names) == 4 + 2
    for name in names:
        doc = Page(store.get(name).decode())
        assert doc.tags.count("script") == (0 if "training" in name else 1)  # the page's own
        assert not {"img", "iframe", "object", "form", "link", "base"} & set(doc.tags)
        assert doc.tags.count("style") == doc.tags.count("main") == doc.tags.count("h1") == 1
        assert not INVISIBLE.search(doc.html)
        assert "{{ 7*7 }}" in doc.html


def test_unit_page_stays_small(store: Store) -> None:
    unit = write_unit(store)
    write_trajectory(store, unit, trajectory((unit.instance_id, 1), turns=1000, observed=30_000))
    doc = page(store, unit)
    assert doc.tags.count("article") == 1002
    assert 1_500_000 < len(doc.html) < 4_500_000
    assert "characters omitted; the full text is in" in doc.html


def test_report_counts_failed_usage_once(store: Store) -> None:
    unit = write_unit(store, mix={"not_run": 1})
    used = Usage(calls=5, requests=6, prompt_tokens=7000, completion_tokens=10, cost_usd=0.25)
    partial = trajectory((unit.instance_id, 1), turns=2, usage=used).to_bytes()
    for name, usage in (("with-usage", used), ("without-usage", Usage())):  # the latter only has a trajectory
        store.put(f"{write_failure(store, unit, name, usage)}trajectory.json", partial)
    killed = key(Failure, "synthetic", unit.instance_id, 1, "killed").replace("failure.json", "trajectory.json")
    store.put(killed, partial)
    summary = write_report(store, "synthetic")
    assert summary.cost.usage == summary.cost.failed_tries == used + used + used


def test_unit_page_lists_hosts_of_the_egress_proxy(store: Store) -> None:
    unit = write_unit(store)
    place = key(SolveRecord, "synthetic", unit.instance_id, 1)
    record = SolveRecord.from_bytes(store.get(place))
    hosts = [EgressHost(host="pypi.org", port=443, count=12), EgressHost(host="", port=0, refused="not TLS", count=1)]
    hosts += [EgressHost(host=f"{n}.org", port=80, refused="is not an allowed host", count=2) for n in range(11)]
    machine = record.machine.model_copy(update={"allowed_hosts": ["pypi.org", "*.b.org"]})
    store.put(place, record.model_copy(update={"egress": hosts, "machine": machine}).to_bytes())
    text = page(store, unit).text
    assert "network to pypi.org, *.b.org only" in text
    assert "Hosts used by the agent pypi.org:443 (12 times)" in text
    assert (
        "Hosts refused to the agent no host (1 time) not TLS; 0.org:80 (2 times) is not an allowed host; 1.org:80"
        in text
    )
    assert "8.org:80 (2 times) is not an allowed host and 2 more" in text
    table = read_parquet(store.get(f"{FOLDER}units.parquet"))
    assert table["refused_hosts"].to_pylist() == [12]
