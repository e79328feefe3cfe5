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


def one(store: Store, **spec: object) -> Unit:
    spec = {"instances": 1, "mix": {"unresolved": 1}, "seed": 5, "agent": "r2egym", "log_lines": 5} | spec
    return Synthetic(**spec).write(store).units[0]  # type: ignore[arg-type]


def page(store: Store, unit: Unit) -> Page:
    write_report(store, "synthetic")
    return Page(store.get(f"{FOLDER}instances/{unit.instance_id}.{unit.attempt}.html").decode())


def change(store: Store, unit: Unit, edit: Callable[[SolveRecord], SolveRecord]) -> None:
    place = key(SolveRecord, "synthetic", unit.instance_id, unit.attempt)
    store.put(place, edit(SolveRecord.from_bytes(store.get(place))).to_bytes())


def put_trajectory(store: Store, unit: Unit, made: Trajectory) -> None:
    store.put(key(Trajectory, "synthetic", unit.instance_id, unit.attempt), made.to_bytes())


def test_every_link_of_every_page_leads_to_a_file_or_a_place_in_it(store: Store) -> None:
    Synthetic(instances=25, attempts=2, agent="r2egym", turns=3, others=1).write(store)
    write_report(store, "synthetic")
    names = set(store.keys("runs/synthetic/"))
    pages = {name: Page(store.get(name).decode()) for name in names if name.endswith(".html")}
    followed = 0
    for name, found in pages.items():
        assert len(found.ids) == len(set(found.ids)), name
        for link in found.links:
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


def test_turns_calls_and_observations_are_all_there(store: Store) -> None:
    unit = one(store, turns=7, exact=True)
    found = page(store, unit)
    assert found.tags.count("article") == 9
    assert {f"t{n}" for n in range(1, 10)} <= set(found.ids)
    assert {f"c{n}" for n in range(1, 8)} <= set(found.ids)
    assert found.html.count("<b>execute_bash</b>") == 4
    assert found.html.count("<b>str_replace_editor</b>") == 2
    assert found.html.count('<pre class="edit"><del>-        return removed\n</del><ins>+        ') == 2
    assert "step 3\n" in found.html  # its colours are gone
    assert "\x1b" not in found.html
    assert "exit code 1" in found.text
    assert '<a href="#t1">system</a>' in found.html
    assert '<a href="#t3">1</a> agent' in found.html
    assert "7 of the agent, 7 calls of tools" in found.text
    assert "7 answered, 1 further request failed" in found.text
    assert found.html.partition('id="h-patch"')[2].partition("</pre>")[0].count("<ins>") == 2  # a count and a run
    assert found.tags.count("svg") >= 3


def test_the_issue_stands_on_top_as_its_markdown_means_it_and_nothing_of_it_is_markup(store: Store) -> None:
    unit = one(store)
    place = key(Instance, "synthetic", unit.instance_id)
    issue = "Title\n\n# Steps\n```python\nx = 1 < 2\n```\n- call `f()`\n- <img src=x>\n" + "And so on.\n" * 5000
    instance = Instance.from_bytes(store.get(place))
    store.put(place, instance.model_copy(update={"problem_statement": issue}).to_bytes())
    found = page(store, unit)
    assert found.html.index('id="h-issue"') < found.html.index('id="h-patch"') < found.html.index('id="h-turns"')
    for part in (
        "<h3>Steps</h3>",
        "<pre>x = 1 &lt; 2</pre>",
        "<li>call <code>f()</code></li><li>&lt;img src=x&gt;</li>",
    ):
        assert part in found.html
    assert f"{len(issue) - ISSUE_CHARACTERS:,} more characters in instance.json" in found.text
    assert 'id="whole-issue"' in found.html


def test_the_reference_patch_is_folded_beside_the_patch_and_so_is_one_in_a_kept_row(store: Store) -> None:
    unit = one(store)
    assert "h-reference" not in page(store, unit).ids
    patch = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-old\n+new\n+more\n"
    place = key(Answer, "synthetic", unit.instance_id)
    for more in ({"patch": patch}, {"source": {"patch": patch}}):
        store.put(place, Answer(instance_id=unit.instance_id, **more).to_bytes())
        reference = page(store, unit).html.partition('id="h-reference"')[2].partition("</section>")[0]
        assert "<summary>What the dataset knows to be right: 1\u00a0file, 7\u00a0lines</summary>" in reference
        assert "<code>x.py</code> <ins>+2</ins> <del>&minus;1</del>" in reference
    store.put(key(Patch, "synthetic", unit.instance_id, 1), patch.encode())
    assert "The patch above is the reference." in page(store, unit).text


def test_a_long_patch_is_whole_and_says_where_a_screen_shows_its_beginning(store: Store) -> None:
    unit = one(store)
    lines = [f"+line {n}" for n in range(5000)]
    patch = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,5000 @@\n" + "\n".join(lines) + "\n"
    store.put(key(Patch, "synthetic", unit.instance_id, 1), patch.encode())
    found = page(store, unit)
    assert "+line 0\n" in found.html
    assert "+line 4999\n" in found.html
    assert "Show all 5,003 lines" in found.text
    assert "<code>new.py</code> <ins>+5,000</ins> <del>&minus;0</del>" in found.html


def test_its_time_is_one_bar_of_its_stages(store: Store) -> None:
    found = page(store, one(store))
    bar = found.html.partition('class="stage-bar"')[2].partition("</figure>")[0]
    widths = [float(width) for width in re.findall(r'<rect class="st-\w+" x="[\d.]+%" width="([\d.]+)%"', bar)]
    assert len(widths) > 3
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert "Agent " in bar
    assert "<dt>Time</dt>" not in found.html


def test_the_first_edit_and_every_turn_that_went_wrong_can_be_jumped_to(store: Store) -> None:
    found = page(store, one(store, turns=30))
    jumps = found.html.partition('class="jumps"')[2].partition("</p>")[0]
    assert '<a href="#c2">First edit</a>' in jumps
    turns = re.findall(r'<a href="#(t\d+)">\d+</a>', jumps)
    assert len(turns) > 3
    for turn in turns:
        article = found.html.partition(f'id="{turn}"')[2].partition("</article>")[0]
        assert "failed" in article


def test_the_verdict_the_failing_tests_and_the_end_of_the_log_are_there(store: Store) -> None:
    found = page(store, one(store))
    assert "Unresolved" in found.text
    assert "Tests that do not pass, " in found.text
    assert "test_keeps_the_count[rows-0 of many]" in found.text
    assert "End of test_output.txt" in found.text
    assert "r2egym asked lab/model-1" in found.text


def test_the_table_links_to_the_page_by_the_name_of_the_instance(store: Store) -> None:
    unit = one(store, turns=7)
    write_report(store, "synthetic")
    html = store.get(f"{FOLDER}report.html").decode()
    assert f'<a href="instances/{unit.instance_id}.1.html">{unit.instance_id}</a>' in html
    assert '<td class="n">7</td>' in html


def test_a_unit_without_a_trajectory_has_a_page_too_and_one_without_files_has_none(store: Store) -> None:
    plan = Synthetic(instances=2, mix={"resolved": 1}).write(store)
    gold, waiting = plan.units
    store.delete_many([key(Trajectory, "synthetic", gold.instance_id, 1)])
    store.delete_many(store.keys(f"runs/synthetic/units/{waiting.instance_id}/"))
    found = page(store, gold)
    assert "The patch" in found.text
    assert "Turn by" not in found.text
    assert f"{FOLDER}instances/{waiting.instance_id}.1.html" not in store.keys(FOLDER)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"steps":[{"step_id":1,"mess', b"\xff\xfe"])
def test_a_trajectory_that_cannot_be_read_costs_its_turns_and_is_named(store: Store, data: bytes) -> None:
    unit = one(store)
    store.put(key(Trajectory, "synthetic", unit.instance_id, 1), data)
    found = page(store, unit)
    assert "Turn by" not in found.text
    doubts = json.loads(store.get(f"{FOLDER}summary.json"))["doubts"]
    assert f"could not be read: runs/synthetic/units/{unit.instance_id}/1/trajectory.json" in " ".join(doubts)


def test_a_failed_try_is_told_with_its_reason_and_how_far_it_got(store: Store) -> None:
    unit = one(store, mix={"failed": 1})
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
    found = page(store, unit)
    assert "Tries that failed, 4" in found.text
    assert "solve, model_access" in found.text
    assert "mend that and start the same run again" in found.text
    assert "insufficient_quota" in found.text
    assert "You exceeded your &lt;b&gt;quota&lt;/b&gt;" in found.html
    assert "How far it got: interrupted, 5 turns" in found.text
    assert "f3-t7" in found.ids
    tries = f"../../units/{unit.instance_id}/1/tries/try-9/"
    assert {f"{tries}failure.json", f"{tries}trajectory.json", f"{tries}step.log"} <= set(found.links)


def test_attempts_inside_an_attempt_are_listed_and_each_is_told(store: Store) -> None:
    unit = one(store, others=2, turns=3)
    usage = Usage(calls=3, requests=3, prompt_tokens=10_000)
    tried = [
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
    change(store, unit, lambda record: record.model_copy(update={"attempts": tried}))
    found = page(store, unit)
    assert "Attempts inside this one" in found.text.replace("&nbsp;", " ")
    assert "2 graded finished accepted 0.1 200 B 3 10,000" in found.text
    assert "Attempt 1, not graded" in found.text
    assert "Attempt 3, not graded" in found.text
    assert {"o0-t1", "o1-t1"} <= set(found.ids)


def test_a_replay_says_whether_it_came_out_the_same(store: Store) -> None:
    unit = one(store, agent="replay", turns=6)
    told = Replayed(observations=6, differing=[2, 5], same_patch=False)
    change(store, unit, lambda record: record.model_copy(update={"replayed": told}))
    found = page(store, unit)
    assert "2 of 6 observations came out otherwise. The patch is another one." in found.text
    assert {"#c2", "#c5"} <= set(found.links)
    told = Replayed(observations=6, differing=[], same_patch=True)
    change(store, unit, lambda record: record.model_copy(update={"replayed": told}))
    assert "0 of 6 observations came out otherwise. The patch is the same." in page(store, unit).text


def test_an_answer_without_a_call_is_marked_and_the_agents_notes_stand_below_the_turns(store: Store) -> None:
    unit = one(store)
    made = trajectory((unit.instance_id, 1), turns=2)
    last = made.steps[-1].model_copy(
        update={"tool_calls": None, "observation": None, "extra": {"malformed": "no_call"}}
    )
    put_trajectory(store, unit, made.model_copy(update={"steps": [*made.steps[:-1], last], "notes": "asked <twice>"}))
    found = page(store, unit)
    assert found.text.count("no call that could be made") == 1
    assert '<pre class="said">asked &lt;twice&gt;</pre>' in found.html


def test_nothing_that_was_said_or_done_becomes_an_element(store: Store) -> None:
    plan = Synthetic(instances=4, agent="r2egym", hostile=True, turns=6, others=1, mix={"unresolved": 3, "failed": 1})
    plan.write(store)
    write_report(store, "synthetic")
    pages = [name for name in store.keys(FOLDER) if "/instances/" in name]
    assert len(pages) == 4
    for name in pages:
        found = Page(store.get(name).decode())
        assert found.tags.count("script") == 1  # the page's own
        assert not {"img", "iframe", "object", "form", "link", "base"} & set(found.tags)
        assert found.tags.count("style") == found.tags.count("main") == found.tags.count("h1") == 1
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", found.html)
        assert "{{ 7*7 }}" in found.html


def test_a_page_of_a_thousand_turns_with_megabytes_of_output_stays_usable(store: Store) -> None:
    unit = one(store)
    put_trajectory(store, unit, trajectory((unit.instance_id, 1), turns=1000, observed=30_000))
    found = page(store, unit)
    assert found.tags.count("article") == 1002
    assert 1_500_000 < len(found.html) < 4_500_000
    assert "characters left out, all of them in" in found.html


def test_the_number_that_the_tries_took_is_counted_once(store: Store) -> None:
    unit = one(store, mix={"not_run": 1})
    used = Usage(calls=5, requests=6, prompt_tokens=7000, completion_tokens=10, cost_usd=0.25)
    partial = trajectory((unit.instance_id, 1), turns=2, usage=used)
    base = {"step": "solve", "instance_id": unit.instance_id, "attempt": 1, "reason": "x", "exit_code": 75}
    for name, told in (("told", used), ("silent", Usage())):  # one says itself what it took, of one only the trajectory
        failure = Failure.model_validate(
            base | {"failure_class": "model", "occurred_at": "2026-11-21T00:00:00Z", "usage": told}
        )
        place = key(Failure, "synthetic", unit.instance_id, 1, name)
        store.put(place, failure.to_bytes())
        store.put(place.replace("failure.json", "trajectory.json"), partial.to_bytes())
    killed = key(Failure, "synthetic", unit.instance_id, 1, "killed").replace("failure.json", "trajectory.json")
    store.put(killed, partial.to_bytes())
    summary = write_report(store, "synthetic")
    assert summary.cost.usage == summary.cost.failed_tries == used + used + used
