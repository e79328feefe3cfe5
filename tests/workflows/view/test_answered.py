"""Units at work that nobody here works on: seen by their answered calls in the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from importlib.metadata import version
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Instance, Plan, RunFile, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.recipe import AgentProgram, Recipe
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.contracts.recorded_calls import FOLDER, RecordedCall, RecordedToolCall, calls_prefix
from swe_argo.steps.contracts.redone import Redone
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Metrics, Usage
from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.steps.errors import EXIT_INFRA
from swe_argo.steps.store import open_store
from swe_argo.steps.store.recorded_calls import CallRecorder
from swe_argo.steps.store.run_lock import DEAD_S, Lock
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.view.answered_units import RUNNING_WINDOW_S
from swe_argo.workflows.view.freshness import Reread
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.view.counting import CountingStore
from tests.workflows.view.server import Address, viewing

SPEC = {"agent": {"name": "r2egym", "max_steps": 7}}
LONG_AGO_S = RUNNING_WINDOW_S + 60


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """A run of two instances, of which nothing ended, and whose pages are of this moment."""
    monkeypatch.setattr(Reread, "keep_s", lambda *_: 0.0)
    bucket = request.param == "s3"
    url = f"s3://{request.getfixturevalue('bucket')}/some/prefix" if bucket else str(tmp_path / "store")
    store = open_store(url, create=True)
    Synthetic("r", 2, mix={"not_run": 1.0}, spec=SPEC).write(store)
    return CountingStore(store)


@pytest.fixture
def unit(store: CountingStore) -> Unit:
    return record_of(store, Plan, "r").units[0]


def folder(unit: Unit) -> str:
    return Place.UNIT.format(run="r", instance=unit.instance_id, attempt=unit.attempt)


def href(unit: Unit) -> str:
    return f"/runs/r/units/{unit.instance_id}/{unit.attempt}"


def answer(number: int, *, ago_s: float = 0.0, try_name: str = "a", attempt: int = 1, **more: object) -> RecordedCall:
    """The answer of that number of an agent that has one a minute. ``ago_s``: seconds before now that it came."""
    usage = Usage(calls=number, requests=number, prompt_tokens=4_000 * number, cost_usd=0.25 * number)
    called = RecordedToolCall(id=f"c{number}", name="execute_bash", arguments=f'{{"cmd": "echo <{number}>"}}')
    values: dict[str, object] = {
        "try_name": try_name,
        "attempt": attempt,
        "request": "0" * 64,
        "shown": [f"saw <{number - 1}>"] if number > 1 else [],
        "text": f"Thought {number}.",
        "calls": [called],
        "metrics": Metrics(prompt_tokens=4_000, completion_token_ids=[1, 2, 3]),
        "usage": usage,
        "spent": usage,
        "lost_s": 0.0,
        "seconds": 60.0 * number,
        "at": datetime.now(UTC) - timedelta(seconds=ago_s),
    }
    return RecordedCall.model_validate(values | more)


@contextmanager
def keeping(store: CountingStore, unit: Unit, name: str = "a") -> Iterator[CallRecorder]:
    """What a try of that name keeps its calls by."""
    keeper = CallRecorder(store, f"{folder(unit)}/{calls_prefix(name, name)}")
    try:
        yield keeper
    finally:
        keeper.close()


def keep(store: CountingStore, unit: Unit, *calls: RecordedCall, name: str = "a") -> None:
    with keeping(store, unit, name) as keeper:
        for call in calls:
            keeper.keep([call])


def fail(store: CountingStore, unit: Unit, name: str = "a", ago_s: float = 0.0) -> None:
    failure = Failure(
        step="solve",
        instance_id=unit.instance_id,
        attempt=unit.attempt,
        failure_class=FailureClass.SANDBOX_LOST,
        reason="it is gone",
        exit_code=EXIT_INFRA,
        occurred_at=(datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat(timespec="seconds"),
    )
    store.put(key(Failure, "r", unit.instance_id, unit.attempt, name), failure.to_bytes())


def working(viewer: Address) -> list[str]:
    """The lines of units at work."""
    table = re.search(r'<table class="list working">(.*?)</table>', viewer.get("/runs/r").text, re.DOTALL)
    return re.findall(r"<tr data-row>.*?</tr>", table[1], re.DOTALL) if table else []


def cells(line: str) -> list[str]:
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", line)]


def parts_read(store: CountingStore) -> list[str]:
    return [name.rpartition(".")[0].rpartition(".")[2] for name in store.read if f"/{FOLDER}/" in name]


def test_view_shows_remote_unit_at_work(store: CountingStore, unit: Unit) -> None:
    keep(store, unit, *(answer(number, ago_s=60.0 * (3 - number) + 20) for number in (1, 2, 3)))
    with viewing(store) as viewer:
        (line,) = working(viewer)
        run, page = viewer.get("/runs/r").text, viewer.get(href(unit)).text
    name, phase, since, turns, used, cost, answered, action = cells(line)
    assert (name, phase, turns, used) == (unit.instance_id, "agent running", "3 of 7", "12,000")
    assert cost == "$0.75"
    assert re.fullmatch(r"3 m \d\d s", since)
    assert re.fullmatch(r"\d\d s ago", answered)
    assert action == "execute_bash: echo &lt;3&gt;"
    assert f'href="{href(unit)}" style="left:' in run, "it is on the timeline"
    assert "Running now</h2>" in run
    assert "if their model answered within the last 15 minutes" in run
    assert re.search(
        r"<b>Running</b> <span>agent running for 3 m \d\d s, turn 3 of 7, .*, last answer \d\d s ago", page
    )
    assert "In failed tries" not in page


def test_view_shows_live_conversation(store: CountingStore, unit: Unit) -> None:
    over = answer(1, text="Once more.", starts_over=True)
    keep(store, unit, answer(1, text="In vain."), over, answer(2), answer(3, calls=[], text="I wait."))
    with viewing(store) as viewer:
        page = viewer.get(href(unit)).text
    texts = ["Once more.", "echo &lt;1&gt;", "saw &lt;1&gt;", "Thought 2.", "saw &lt;2&gt;", "I wait."]
    places = [page.index(text) for text in texts]
    assert places == sorted(places)
    assert "In vain." not in page
    assert "trajectory.json" not in page


@pytest.mark.parametrize(("of", "is_told"), [(version("swe-argo"), True), ("0.0.0", False)])
@pytest.mark.parametrize(
    ("agent", "words"), [("r2egym", "BEGIN FUNCTION"), ("mini-swe-agent", "```mswea_bash_command"), ("codex", "Mend")]
)
def test_view_shows_prompts_of_version(
    store: CountingStore, unit: Unit, of: str, agent: str, words: str, *, is_told: bool
) -> None:
    run = record_of(store, RunFile, "r")
    changes = {"instruction": "Mend <this>: {{ problem_statement }}", "versions": {"swe-argo": of}, "fn_calling": False}
    changes["spec"] = run.spec.model_copy(update={"agent": run.spec.agent.model_copy(update={"name": agent})})
    if agent == "codex":
        changes["program"] = AgentProgram(recipe=Recipe(name=agent, command=[agent, "{instruction}"]))
    store.put(key(RunFile, "r"), run.model_copy(update=changes).to_bytes())
    keep(store, unit, answer(1))
    instance = Instance.from_bytes(store.get(key(Instance, "r", unit.instance_id)))
    with viewing(store) as viewer:
        page = unescape(viewer.get(href(unit)).text)
    assert (words in page, f"Mend <this>: {instance.problem_statement}" in page) == (is_told, is_told)
    assert "Thought 1." in page


def test_view_reads_recorded_calls_once(store: CountingStore, unit: Unit) -> None:
    with viewing(store) as viewer:
        viewer.get("/runs/r")
        listed, store.listed = store.listed, []
        with keeping(store, unit) as keeper:
            for number in (1, 2, 3):
                keeper.keep([answer(number)])
            viewer.get("/runs/r")
            assert store.listed == listed
            assert parts_read(store) == ["00002"], "older parts tell nothing more"
            assert len(working(viewer)) == 1
            assert parts_read(store) == ["00002"]
            keeper.keep([answer(4)])
            assert "4 of 7" in working(viewer)[0]
            assert parts_read(store) == ["00002", "00003"]
            store.read.clear()
            viewer.get(href(unit))
            assert sorted(parts_read(store)) == ["00000", "00001", "00002", "00003"]
            keeper.keep([answer(5)])
            store.read.clear()
            assert "Thought 5." in viewer.get(href(unit)).text
            assert parts_read(store) == ["00004"] * 2, "for the run, and for the conversation"
            viewer.get(href(unit))
            assert parts_read(store) == ["00004"] * 2


def test_view_hides_finished_units(store: CountingStore, unit: Unit, tmp_path: Path) -> None:
    with viewing(store) as viewer:
        keep(store, unit, answer(1, ago_s=LONG_AGO_S))
        assert working(viewer) == []
        keep(store, unit, answer(2, ago_s=30, try_name="b"), name="b")
        assert "2 of 7" in working(viewer)[0]
        fail(store, unit, "b")
        assert working(viewer) == [], "neither the one that failed nor the silent one before it"
        assert "<b>Running</b>" not in viewer.get(href(unit)).text
        keep(store, unit, answer(3, try_name="c", at=datetime.now(UTC) + timedelta(seconds=2)), name="c")
        assert "3 of 7" in working(viewer)[0]
        finished = open_store(str(tmp_path / "done"), create=True)
        Synthetic("r", 2, mix={"resolved": 1.0}, spec=SPEC).write(finished)
        solved = key(SolveRecord, "r", unit.instance_id, unit.attempt)
        store.put(solved, finished.get(solved))
        assert working(viewer) == []
        assert "<b>Running</b>" not in viewer.get(href(unit)).text


def test_view_times_resumed_try(store: CountingStore, unit: Unit) -> None:
    then = [answer(number, ago_s=300.0 - number) for number in (1, 2)]
    keep(store, unit, *then)
    fail(store, unit, ago_s=120)
    with viewing(store) as viewer, keeping(store, unit, "b") as keeper:
        keeper.keep(then)
        assert working(viewer) == [], "it has no answer of its own yet"
        keeper.keep([answer(3, try_name="b", seconds=500.0)])
        name, _, since, turns, *_ = cells(working(viewer)[0])
    assert (name, turns) == (unit.instance_id, "3 of 7")
    assert re.fullmatch(r"2 m [0-5]\d s", since)


def test_view_ignores_archived_calls(store: CountingStore, unit: Unit) -> None:
    keep(store, unit, answer(1, ago_s=30))
    past = Redone(
        instance_id=unit.instance_id,
        attempt=unit.attempt,
        outcome=Outcome.UNRESOLVED,
        stop_reason=None,
        requested="unresolved",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    store.put(key(Redone, "r", unit.instance_id, unit.attempt, "redone-0123456789ab"), past.to_bytes())
    with viewing(store) as viewer:
        assert working(viewer) == []
        keep(store, unit, answer(1, at=datetime.now(UTC) + timedelta(seconds=2), try_name="b"), name="b")
        assert len(working(viewer)) == 1


def test_view_hides_abandoned_units(store: CountingStore, unit: Unit) -> None:
    keep(store, unit, answer(1))
    lock = Lock(token="t", process="p", pid=1, host="elsewhere", alive_at=datetime.now(UTC).timestamp() - 2 * DEAD_S)
    store.put(key(Lock, "r"), lock.to_bytes())
    with viewing(store) as viewer:
        assert working(viewer) == []


def test_view_ignores_unreadable_calls(store: CountingStore, unit: Unit) -> None:
    store.put(f"{folder(unit)}/{calls_prefix('a', 'a')}.00000.jsonl", b"{}\n")
    with viewing(store) as viewer:
        assert working(viewer) == []
        assert viewer.get(href(unit)).status == 200
