from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import PurePosixPath

import pytest

from swe_argo.steps.contracts.data import Answer, Instance, Patch, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.recording import Replayed
from swe_argo.steps.contracts.solve_record import SolveAttempt, SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory, Usage
from swe_argo.steps.reports.reading import ISSUE_CHARACTERS
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import Store
from tests.steps.reports.conversations import trajectory
from tests.steps.reports.synthetic import Synthetic

FOLDER = "runs/synthetic/report/"


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


def change(store: Store, unit: Unit, edit: Callable[[SolveRecord], SolveRecord]) -> None:
    place = key(SolveRecord, "synthetic", unit.instance_id, unit.attempt)
    store.put(place, edit(SolveRecord.from_bytes(store.get(place))).to_bytes())


def write_trajectory(store: Store, unit: Unit, conversation: Trajectory) -> None:
    store.put(key(Trajectory, "synthetic", unit.instance_id, unit.attempt), conversation.to_bytes())


def test_page_links_are_valid(store: Store) -> None:
    Synthetic(instances=25, attempts=2, agent="r2egym", turns=3, others=1).write(store)
    write_report(store, "synthetic")
    names = set(store.keys("runs/synthetic/"))
    pages = {name: Page(store.get(name).decode()) for name in names if name.endswith(".html")}
    followed = 0
    for name, doc in pages.items():
        assert len(doc.ids) == len(set(doc.ids)), name
        for link in doc.links:
            file, _, anchor = link.partition("#")
            parts: list[str] = []
            for part in (PurePosixPath(name).parent / file).parts if file else PurePosixPath(name).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            target = "/".join(parts)
            assert target in names or f"{target}/README.md" in names, (name, link)
            assert not anchor or anchor in pages[target].ids, (name, link)
            followed += 1
    assert followed > 500
    assert len(pages) > 40


def test_unit_page_shows_turns_and_calls(store: Store) -> None:
    unit = write_unit(store, turns=7, exact=True)
    doc = page(store, unit)
    assert doc.tags.count("article") == 9
    assert {f"t{n}" for n in range(1, 10)} <= set(doc.ids)
    assert {f"c{n}" for n in range(1, 8)} <= set(doc.ids)
    assert doc.html.count("<b>execute_bash</b>") == 4
    assert doc.html.count("<b>str_replace_editor</b>") == 2
    assert doc.html.count('<pre class="edit"><del>-        return removed\n</del><ins>+        ') == 2
    assert "step 3\n" in doc.html  # its colours are gone
    assert "\x1b" not in doc.html
    assert "exit code 1" in doc.text
    assert '<a href="#t1">system</a>' in doc.html
    assert '<a href="#t3">1</a> agent' in doc.html
    assert "7 of the agent, 7 tool calls" in doc.text
    assert "7 answered, 1 further request failed" in doc.text
    assert doc.html.partition('id="h-patch"')[2].partition("</pre>")[0].count("<ins>") == 2  # a count and a run
    assert doc.tags.count("svg") >= 3


def test_unit_page_renders_issue_safely(store: Store) -> None:
    unit = write_unit(store)
    place = key(Instance, "synthetic", unit.instance_id)
    issue = "Title\n\n# Steps\n```python\nx = 1 < 2\n```\n- call `f()`\n- <img src=x>\n" + "And so on.\n" * 5000
    instance = Instance.from_bytes(store.get(place))
    store.put(place, instance.model_copy(update={"problem_statement": issue}).to_bytes())
    doc = page(store, unit)
    assert doc.html.index('id="h-issue"') < doc.html.index('id="h-patch"') < doc.html.index('id="h-turns"')
    for part in (
        "<h3>Steps</h3>",
        "<pre>x = 1 &lt; 2</pre>",
        "<li>call <code>f()</code></li><li>&lt;img src=x&gt;</li>",
    ):
        assert part in doc.html
    assert f"{len(issue) - ISSUE_CHARACTERS:,} more characters in instance.json" in doc.text
    assert 'id="whole-issue"' in doc.html


def test_unit_page_folds_reference_patch(store: Store) -> None:
    unit = write_unit(store)
    assert "h-reference" not in page(store, unit).ids
    patch = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-old\n+new\n+more\n"
    place = key(Answer, "synthetic", unit.instance_id)
    for more in ({"patch": patch}, {"source": {"patch": patch}}):
        store.put(place, Answer(instance_id=unit.instance_id, **more).to_bytes())
        reference = page(store, unit).html.partition('id="h-reference"')[2].partition("</section>")[0]
        assert "<summary>The dataset's solution: 1\u00a0file, 7\u00a0lines</summary>" in reference
        assert "<code>x.py</code> <ins>+2</ins> <del>&minus;1</del>" in reference
    store.put(key(Patch, "synthetic", unit.instance_id, 1), patch.encode())
    assert "The patch above is identical to the reference patch." in page(store, unit).text


def test_unit_page_has_whole_patch(store: Store) -> None:
    unit = write_unit(store)
    lines = [f"+line {n}" for n in range(5000)]
    patch = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,5000 @@\n" + "\n".join(lines) + "\n"
    store.put(key(Patch, "synthetic", unit.instance_id, 1), patch.encode())
    doc = page(store, unit)
    assert "+line 0\n" in doc.html
    assert "+line 4999\n" in doc.html
    assert "Show all 5,003 lines" in doc.text
    assert "<code>new.py</code> <ins>+5,000</ins> <del>&minus;0</del>" in doc.html


def test_unit_page_shows_time_by_stage(store: Store) -> None:
    doc = page(store, write_unit(store))
    bar = doc.html.partition('class="stage-bar"')[2].partition("</figure>")[0]
    widths = [float(width) for width in re.findall(r'<rect class="st-\w+" x="[\d.]+%" width="([\d.]+)%"', bar)]
    assert len(widths) > 3
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert "Agent " in bar
    assert "<dt>Time</dt>" not in doc.html


def test_unit_page_links_errors(store: Store) -> None:
    doc = page(store, write_unit(store, turns=30))
    jumps = doc.html.partition('class="jumps"')[2].partition("</p>")[0]
    assert '<a href="#c2">First edit</a>' in jumps
    turns = re.findall(r'<a href="#(t\d+)">\d+</a>', jumps)
    assert len(turns) > 3
    for turn in turns:
        article = doc.html.partition(f'id="{turn}"')[2].partition("</article>")[0]
        assert "failed" in article


def test_unit_page_shows_verdict(store: Store) -> None:
    doc = page(store, write_unit(store))
    assert "Unresolved" in doc.text
    assert "Tests that do not pass, " in doc.text
    assert "test_keeps_the_count[rows-0 of many]" in doc.text
    assert "End of test_output.txt" in doc.text
    assert "r2egym asked lab/model-1" in doc.text


def test_units_table_links_to_unit_page(store: Store) -> None:
    unit = write_unit(store, turns=7)
    write_report(store, "synthetic")
    html = store.get(f"{FOLDER}report.html").decode()
    assert f'<a href="instances/{unit.instance_id}.1.html">{unit.instance_id}</a>' in html
    assert '<td class="n">7</td>' in html


def test_unit_page_needs_no_trajectory(store: Store) -> None:
    plan = Synthetic(instances=2, mix={"resolved": 1}).write(store)
    gold, waiting = plan.units
    store.delete_many([key(Trajectory, "synthetic", gold.instance_id, 1)])
    store.delete_many(store.keys(f"runs/synthetic/units/{waiting.instance_id}/"))
    doc = page(store, gold)
    assert "Patch" in doc.text
    assert "Turn by" not in doc.text
    assert f"{FOLDER}instances/{waiting.instance_id}.1.html" not in store.keys(FOLDER)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"steps":[{"step_id":1,"mess', b"\xff\xfe"])
def test_broken_trajectory_is_named(store: Store, data: bytes) -> None:
    unit = write_unit(store)
    store.put(key(Trajectory, "synthetic", unit.instance_id, 1), data)
    doc = page(store, unit)
    assert "Turn by" not in doc.text
    doubts = json.loads(store.get(f"{FOLDER}summary.json"))["doubts"]
    assert f"could not be read: runs/synthetic/units/{unit.instance_id}/1/trajectory.json" in " ".join(doubts)


def test_unit_page_shows_failed_tries(store: Store) -> None:
    unit = write_unit(store, mix={"failed": 1})
    place = key(Failure, "synthetic", unit.instance_id, 1, "try-9")
    failure = Failure(
        step="solve",
        instance_id=unit.instance_id,
        attempt=1,
        failure_class=FailureClass.MODEL_ACCESS,
        reason="insufficient_quota",
        detail="You exceeded your <b>quota</b>",
        exit_code=64,
        occurred_at="2026-11-21T00:00:00Z",
        usage=Usage(calls=5, requests=6, prompt_tokens=7000),
    )
    store.put(place, failure.to_bytes())
    partial = trajectory((unit.instance_id, 1), turns=5, stop=StopReason.INTERRUPTED)
    store.put(place.replace("failure.json", "trajectory.json"), partial.to_bytes())
    store.put(place.replace("failure.json", "step.log"), b"said")
    doc = page(store, unit)
    assert "Failed tries, 4" in doc.text
    assert "solve, model_access" in doc.text
    assert "fix that and start the same run again" in doc.text
    assert "insufficient_quota" in doc.text
    assert "You exceeded your &lt;b&gt;quota&lt;/b&gt;" in doc.html
    assert "Progress: interrupted, 5 turns" in doc.text
    assert "f3-t7" in doc.ids
    tries = f"../../units/{unit.instance_id}/1/tries/try-9/"
    assert {f"{tries}failure.json", f"{tries}trajectory.json", f"{tries}step.log"} <= set(doc.links)


def test_unit_page_lists_inner_attempts(store: Store) -> None:
    unit = write_unit(store, others=2, turns=3)
    usage = Usage(calls=3, requests=3, prompt_tokens=10_000)
    attempts = [
        SolveAttempt(
            number=n,
            stop_reason=StopReason.FINISHED if n == 2 else StopReason.MAX_STEPS,
            temperature=0.0 if n == 1 else 0.1,
            accepted=n == 2,
            chosen=n == 2,
            patch_bytes=100 * n,
            usage=usage,
        )
        for n in (1, 2, 3)
    ]
    change(store, unit, lambda record: record.model_copy(update={"attempts": attempts}))
    doc = page(store, unit)
    assert "Inner attempts" in doc.text.replace("&nbsp;", " ")
    assert "2 graded finished accepted 0.1 200 B 3 10,000" in doc.text
    assert "Attempt 1, not graded" in doc.text
    assert "Attempt 3, not graded" in doc.text
    assert {"o0-t1", "o1-t1"} <= set(doc.ids)


def test_unit_page_shows_replay_result(store: Store) -> None:
    unit = write_unit(store, agent="replay", turns=6)
    replayed = Replayed(observations=6, differing=[2, 5], same_patch=False)
    change(store, unit, lambda record: record.model_copy(update={"replayed": replayed}))
    doc = page(store, unit)
    assert "2 of 6 observations differ from the recording. The patch differs." in doc.text
    assert {"#c2", "#c5"} <= set(doc.links)
    replayed = Replayed(observations=6, differing=[], same_patch=True)
    change(store, unit, lambda record: record.model_copy(update={"replayed": replayed}))
    assert "0 of 6 observations differ from the recording. The patch is the same." in page(store, unit).text


def test_unit_page_marks_missing_call(store: Store) -> None:
    unit = write_unit(store)
    whole = trajectory((unit.instance_id, 1), turns=2)
    last = whole.steps[-1].model_copy(
        update={"tool_calls": None, "observation": None, "extra": {"malformed": "no_call"}}
    )
    write_trajectory(
        store, unit, whole.model_copy(update={"steps": [*whole.steps[:-1], last], "notes": "asked <twice>"})
    )
    doc = page(store, unit)
    assert doc.text.count("no valid tool call") == 1
    assert '<pre class="said">asked &lt;twice&gt;</pre>' in doc.html


def test_unit_page_escapes_hostile_text(store: Store) -> None:
    plan = Synthetic(instances=4, agent="r2egym", hostile=True, turns=6, others=1, mix={"unresolved": 3, "failed": 1})
    plan.write(store)
    write_report(store, "synthetic")
    pages = [name for name in store.keys(FOLDER) if "/instances/" in name]
    assert len(pages) == 4
    for name in pages:
        doc = Page(store.get(name).decode())
        assert doc.tags.count("script") == 1  # the page's own
        assert not {"img", "iframe", "object", "form", "link", "base"} & set(doc.tags)
        assert doc.tags.count("style") == doc.tags.count("main") == doc.tags.count("h1") == 1
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", doc.html)
        assert "{{ 7*7 }}" in doc.html


def test_unit_page_stays_small(store: Store) -> None:
    unit = write_unit(store)
    write_trajectory(store, unit, trajectory((unit.instance_id, 1), turns=1000, observed=30_000))
    doc = page(store, unit)
    assert doc.tags.count("article") == 1002
    assert 1_500_000 < len(doc.html) < 4_500_000
    assert "characters omitted; the full text is in" in doc.html


def test_unit_page_counts_usage_once(store: Store) -> None:
    unit = write_unit(store, mix={"not_run": 1})
    used = Usage(calls=5, requests=6, prompt_tokens=7000, completion_tokens=10, cost_usd=0.25)
    partial = trajectory((unit.instance_id, 1), turns=2, usage=used)
    base = {"step": "solve", "instance_id": unit.instance_id, "attempt": 1, "reason": "x", "exit_code": 75}
    for name, spent in (
        ("told", used),
        ("silent", Usage()),
    ):  # one says itself what it took, of one only the trajectory
        failure = Failure.model_validate(
            base | {"failure_class": "model", "occurred_at": "2026-11-21T00:00:00Z", "usage": spent}
        )
        place = key(Failure, "synthetic", unit.instance_id, 1, name)
        store.put(place, failure.to_bytes())
        store.put(place.replace("failure.json", "trajectory.json"), partial.to_bytes())
    killed = key(Failure, "synthetic", unit.instance_id, 1, "killed").replace("failure.json", "trajectory.json")
    store.put(killed, partial.to_bytes())
    summary = write_report(store, "synthetic")
    assert summary.cost.usage == summary.cost.failed_tries == used + used + used
