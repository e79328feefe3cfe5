"""Units at work on other machines, shown from their recorded calls in the store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import Plan, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import Place, key
from swe_argo.steps.contracts.recorded_calls import FOLDER, RecordedCall, RecordedToolCall, calls_prefix
from swe_argo.steps.contracts.redone import Redone
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Metrics, Usage
from swe_argo.steps.contracts.verdict import Outcome
from swe_argo.steps.errors import EXIT_INFRA
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.recorded_calls import CallRecorder
from swe_argo.steps.store.records import read_record
from swe_argo.steps.store.run_lock import DEAD_S, Lock
from swe_argo.workflows.view.recorded_conversations import RUNNING_WINDOW_S
from swe_argo.workflows.view.run_states import RefreshedValue
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.view.server import Address, viewing

SPEC = {"agent": {"name": "r2egym", "max_steps": 7}}
LONG_AGO_S = RUNNING_WINDOW_S + 60


class CountingStore:
    """A store that records the keys read and the prefixes listed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read: list[str] = []
        self.listed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return self._store.get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        names = list(keys)
        self.read += names
        return self._store.get_many(names)

    def keys(self, prefix: str) -> list[str]:
        self.listed.append(prefix)
        return self._store.keys(prefix)

    def folders(self, prefix: str) -> list[str]:
        self.listed.append(prefix)
        return self._store.folders(prefix)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of two unfinished instances, whose pages are never cached."""
    monkeypatch.setattr(RefreshedValue, "validity_s", lambda *_: 0.0)
    in_bucket = getattr(request, "param", "folder") == "s3"
    url = f"s3://{request.getfixturevalue('bucket')}/some/prefix" if in_bucket else str(tmp_path / "store")
    store = open_store(url, create=True)
    Synthetic("r", 2, mix={"not_run": 1.0}, spec=SPEC).write(store)
    return CountingStore(store)


BOTH_STORES = pytest.mark.parametrize("store", ["folder", "s3"], indirect=True)


@pytest.fixture
def unit(store: Any) -> Unit:
    return read_record(store, Plan, "r").units[0]


def folder(unit: Unit) -> str:
    return Place.UNIT.format(run="r", instance=unit.instance_id, attempt=unit.attempt)


def href(unit: Unit) -> str:
    return f"/runs/r/units/{unit.instance_id}/{unit.attempt}"


def answer(number: int, *, ago_s: float = 0.0, try_name: str = "a", attempt: int = 1, **more: object) -> RecordedCall:
    """Return the numbered answer of an agent that gets one a minute; ``ago_s``: its age in seconds."""
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
def recording(store: Any, unit: Unit, name: str = "a") -> Iterator[CallRecorder]:
    """Return the recorder of a try."""
    recorder = CallRecorder(store, f"{folder(unit)}/{calls_prefix(name, name)}")
    try:
        yield recorder
    finally:
        recorder.close()


def record(store: Any, unit: Unit, *calls: RecordedCall, name: str = "a") -> None:
    with recording(store, unit, name) as recorder:
        for call in calls:
            recorder.record([call])


def fail(store: Any, unit: Unit, name: str = "a", ago_s: float = 0.0) -> None:
    values = {"step": "solve", "instance_id": unit.instance_id, "attempt": unit.attempt, "reason": "it is gone"}
    values |= {"failure_class": FailureClass.SANDBOX_LOST, "exit_code": EXIT_INFRA}
    occurred_at = (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat(timespec="seconds")
    failure = Failure.model_validate(values | {"occurred_at": occurred_at})
    store.put(key(Failure, "r", unit.instance_id, unit.attempt, name), failure.to_bytes())


def working(viewer: Address) -> list[str]:
    """Return the table rows of units at work."""
    table = re.search(r'<table class="list working">(.*?)</table>', viewer.get("/runs/r").text, re.DOTALL)
    return re.findall(r"<tr data-row>.*?</tr>", table[1], re.DOTALL) if table else []


def cells(line: str) -> list[str]:
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", line)]


def parts_read(store: Any) -> list[str]:
    return [name.rpartition(".")[0].rpartition(".")[2] for name in store.read if f"/{FOLDER}/" in name]


@BOTH_STORES
def test_view_shows_remote_unit_at_work(store: Any, unit: Unit) -> None:
    record(store, unit, *(answer(number, ago_s=60.0 * (3 - number) + 20) for number in (1, 2, 3)))
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


def test_view_shows_live_conversation(store: Any, unit: Unit) -> None:
    over = answer(1, text="Once more.", starts_over=True)
    record(store, unit, answer(1, text="In vain."), over, answer(2), answer(3, calls=[], text="I wait."))
    with viewing(store) as viewer:
        page = viewer.get(href(unit)).text
    texts = ["Once more.", "echo &lt;1&gt;", "saw &lt;1&gt;", "Thought 2.", "saw &lt;2&gt;", "I wait."]
    places = [page.index(text) for text in texts]
    assert places == sorted(places)
    assert "In vain." not in page
    assert "trajectory.json" not in page


@BOTH_STORES
def test_view_reads_recorded_calls_once(store: Any, unit: Unit) -> None:
    with viewing(store) as viewer:
        viewer.get("/runs/r")
        listed, store.listed = store.listed, []
        with recording(store, unit) as recorder:
            for number in (1, 2, 3):
                recorder.record([answer(number)])
            viewer.get("/runs/r")
            assert store.listed == listed
            assert parts_read(store) == ["00002"], "older parts tell nothing more"
            assert len(working(viewer)) == 1
            assert parts_read(store) == ["00002"]
            recorder.record([answer(4)])
            assert "4 of 7" in working(viewer)[0]
            assert parts_read(store) == ["00002", "00003"]
            store.read.clear()
            viewer.get(href(unit))
            assert sorted(parts_read(store)) == ["00000", "00001", "00002", "00003"]
            recorder.record([answer(5)])
            store.read.clear()
            assert "Thought 5." in viewer.get(href(unit)).text
            assert parts_read(store) == ["00004"] * 2, "for the run, and for the conversation"
            viewer.get(href(unit))
            assert parts_read(store) == ["00004"] * 2


def test_view_hides_finished_units(store: Any, unit: Unit, tmp_path: Path) -> None:
    with viewing(store) as viewer:
        record(store, unit, answer(1, ago_s=LONG_AGO_S))
        assert working(viewer) == []
        record(store, unit, answer(2, ago_s=30, try_name="b"), name="b")
        assert "2 of 7" in working(viewer)[0]
        fail(store, unit, "b")
        assert working(viewer) == [], "neither the one that failed nor the silent one before it"
        assert "<b>Running</b>" not in viewer.get(href(unit)).text
        record(store, unit, answer(3, try_name="c", at=datetime.now(UTC) + timedelta(seconds=2)), name="c")
        assert "3 of 7" in working(viewer)[0]
        finished = open_store(str(tmp_path / "done"), create=True)
        Synthetic("r", 2, mix={"resolved": 1.0}, spec=SPEC).write(finished)
        solved = key(SolveRecord, "r", unit.instance_id, unit.attempt)
        store.put(solved, finished.get(solved))
        assert working(viewer) == []
        assert "<b>Running</b>" not in viewer.get(href(unit)).text


def test_view_times_resumed_try(store: Any, unit: Unit) -> None:
    then = [answer(number, ago_s=300.0 - number) for number in (1, 2)]
    record(store, unit, *then)
    fail(store, unit, ago_s=120)
    with viewing(store) as viewer, recording(store, unit, "b") as recorder:
        recorder.record(then)
        assert working(viewer) == [], "it has no answer of its own yet"
        recorder.record([answer(3, try_name="b", seconds=500.0)])
        name, _, since, turns, *_ = cells(working(viewer)[0])
    assert (name, turns) == (unit.instance_id, "3 of 7")
    assert re.fullmatch(r"2 m [0-5]\d s", since)


def test_view_ignores_archived_calls(store: Any, unit: Unit) -> None:
    record(store, unit, answer(1, ago_s=30))
    values = {"instance_id": unit.instance_id, "attempt": unit.attempt, "outcome": Outcome.UNRESOLVED}
    values |= {"stop_reason": None, "requested": "unresolved", "at": datetime.now(UTC).isoformat(timespec="seconds")}
    past = Redone.model_validate(values)
    store.put(key(Redone, "r", unit.instance_id, unit.attempt, "redone-0123456789ab"), past.to_bytes())
    with viewing(store) as viewer:
        assert working(viewer) == []
        record(store, unit, answer(1, at=datetime.now(UTC) + timedelta(seconds=2), try_name="b"), name="b")
        assert len(working(viewer)) == 1


def test_view_ignores_unreadable_and_abandoned_calls(store: Any, unit: Unit) -> None:
    store.put(f"{folder(unit)}/{calls_prefix('a', 'a')}.00000.jsonl", b"{}\n")
    with viewing(store) as viewer:
        assert working(viewer) == []
        assert viewer.get(href(unit)).status == 200
        record(store, unit, answer(1), name="b")
        assert len(working(viewer)) == 1
        long_ago = datetime.now(UTC).timestamp() - 2 * DEAD_S
        lock = Lock(token="t", process="p", pid=1, host="elsewhere", alive_at=long_ago)
        store.put(key(Lock, "r"), lock.to_bytes())
        assert working(viewer) == []
