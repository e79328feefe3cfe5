from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swe_argo.steps.contracts.data import EgressHost, Instance, Machine, Patch, Plan
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import Place, Record, key
from swe_argo.steps.contracts.recording import Replayed
from swe_argo.steps.contracts.solve_record import History, SolveRecord
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, StopReason, Trajectory, Turn
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome, TestLog
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store
from swe_argo.steps.store.records import read_record
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.cli import show
from swe_argo.workflows.terminal.unit_lines import describe_replays
from tests.steps.agents.solved_units import Call, grade, metrics, trajectory
from tests.steps.test_export import IDS, fill
from tests.workflows.command import call
from tests.workflows.screen import run_at_terminal

ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
LONG: Call = ("execute_bash", {"cmd": "seq 1 40"}, "\n".join(map(str, range(1, 41))) + "\nSteps Remaining: 3")
EDIT: Call = ("file_editor", {"command": "create", "path": "/testbed/a.py", "file_text": "one\ntwo\n"}, "made")


@pytest.fixture
def store(store: Store) -> Store:
    fill(store)
    for number, reason in enumerate(("an earlier one", "the machine went away")):
        put_failure(store, IDS[2], f"t{number}", reason, number)
    put_trajectory(store, trajectory([LONG], [EDIT], [("finish", {"command": "submit"}, "")]))
    return store


def put_trajectory(store: Store, whole: Trajectory, instance_id: str = IDS[0]) -> None:
    store.put(key(Trajectory, "night", instance_id, 1), whole.to_bytes())


def put_failure(store: Store, instance_id: str, name: str, reason: str, second: int) -> None:
    failure = Failure(
        step="solve",
        instance_id=instance_id,
        attempt=1,
        failure_class=FailureClass.SANDBOX_LOST,
        reason=reason,
        exit_code=75,
        occurred_at=f"2099-01-01T00:00:{second:02d}+00:00",
    )
    store.put(key(Failure, "night", instance_id, 1, name), failure.to_bytes())


def partial(store: Store, name: str, whole: Trajectory, instance_id: str = IDS[2]) -> None:
    folder = Place.UNIT.format(run="night", instance=instance_id, attempt=1)
    store.put(f"{folder}/tries/{name}/{Trajectory.file}", whole.to_bytes())


def show_text(store: Store, instance_id: str = IDS[0], **how: Any) -> str:
    text = io.StringIO()
    show.print_stored(store, "night", instance_id, Console(file=text, width=100), show.ShowOptions(**how))
    return text.getvalue()


def test_show_prints_trajectory_by_turn(store: Store) -> None:
    text = show_text(store)
    assert re.search("\n  Agent +r2egym, openai/m, function calling\n  Turns +3 of the agent, 3 tool calls\n", text)
    assert "\nsystem\nYou are an agent.\n\nuser\nMend it.\n" in text
    assert re.search("\nturn 1  .*100 in · 10 out · \\$0.010 · 1.5 s\nI look.\n", text)
    assert "\nexecute_bash $ seq 1 40\n    1\n    2\n" in text
    edit = "file_editor\n  command: create\n  path: /testbed/a.py\n  file_text:\n      one\n      two\n"
    assert f"\n{edit}    made\n    (exit code 0 · 0.2 s · 1 line)\n" in text
    assert "\nturn 3 " in text
    assert "\nstopped: finished, 3 turns, " in text
    assert "\npatch\ndiff --git a/a.py b/a.py\n" in text
    assert "\nend of test_output.txt\n1 passed\n" in text
    assert text.splitlines()[0] == f"{IDS[0]} #1 of night"


def test_show_folds_long_texts(store: Store) -> None:
    store.put(key(Patch, "night", IDS[0], 1), b"diff --git a/a b/a\n" + b"+x\n" * 100 + b"+last\n")
    folded, full = show_text(store), show_text(store, full=True)
    assert "    12\n    … 29 more lines (--full)\n" in folded
    assert "    40\n" not in folded
    assert "… 42 more lines (--full)" in folded
    assert "    40\n" in full
    assert "+last\n" in full
    assert "more lines" not in full


def test_show_full_omits_nothing(store: Store) -> None:
    names = [f"test_{n}_{'x' * 400}" for n in range(250)]
    unresolved = grade(Outcome.UNRESOLVED, IDS[0]).model_copy(update={"failing_tests": names})
    store.put(key(GradeRecord, "night", IDS[0], 1), unresolved.to_bytes())
    store.put(key(TestLog, "night", IDS[0], 1), f"{'y' * 1_500}\n{'z' * 3_000}\n".encode())
    for n in range(25):
        put_failure(store, IDS[0], f"try-{n}", f"loss {n} " + "w" * 900, n)
    folded, full = show_text(store), show_text(store, full=True)
    assert all(f"failing: {name}\n" in full for name in names)
    assert "and 230 more (--full)\n" in folded
    assert "y" * 1_500 in folded
    assert f"{'z' * 2_000} … 1,000 more characters\n" in folded
    assert f"\n{'z' * 3_000}\n" in full
    assert (folded.count("failed try of"), full.count("failed try of")) == (20, 25)
    assert "5 earlier failed tries not shown (--full)\n" in folded
    assert "loss 4" not in folded
    assert f"loss 0 {'w' * 900}\n" in full
    assert "(--full)" not in full


def test_show_prints_verdict(store: Store) -> None:
    store.put(key(GradeRecord, "night", IDS[0], 1), grade(Outcome.UNRESOLVED, IDS[0]).to_bytes())
    text = show_text(store)
    assert "\nUnresolved, at least one listed test does not pass\n" in text
    assert "\n  Fail to pass  0 of 1 pass\n  Pass to pass  2 of 2 pass\n" in text
    assert "\n  failing: test_a\n" in text


def test_show_prints_newest_failed_try(store: Store) -> None:
    partial(store, "t0", trajectory([("execute_bash", {"cmd": "old"}, "")], reason=StopReason.INTERRUPTED))
    partial(store, "t1", trajectory([("execute_bash", {"cmd": "new"}, "")], reason=StopReason.INTERRUPTED))
    text = show_text(store, IDS[2])
    assert "\nInfrastructure, no verdict: the infrastructure failed, not the agent\n" in text
    assert "failed try of solve, sandbox_lost, 2099-01-01 00:00:01 UTC: the machine went away\n" in text
    assert "\nthe turns are from the newest try, which failed\n" in text
    assert "execute_bash $ new\n" in text
    assert "$ old" not in text
    assert "stopped: interrupted, 1 turn, " in text


def test_show_prints_killed_try(store: Store) -> None:
    partial(store, "killed", trajectory([("execute_bash", {"cmd": "cut short"}, "")]))
    assert "execute_bash $ cut short\n" in show_text(store, IDS[2])
    partial(store, "t0", trajectory([("execute_bash", {"cmd": "told why"}, "")]))
    assert "execute_bash $ told why\n" in show_text(store, IDS[2])


def test_show_sorts_failed_tries(store: Store) -> None:
    for name, second in (("b-pod", 2), ("a-pod", 3), ("c-pod", 3)):
        put_failure(store, IDS[2], name, f"{name} was lost", second)
        partial(store, name, trajectory([("execute_bash", {"cmd": f"echo {name}"}, "")]))
    text = show_text(store, IDS[2])
    assert re.findall(r"(.-pod) was lost", text) == ["b-pod", "a-pod", "c-pod"]
    assert "execute_bash $ echo c-pod\n" in text


@pytest.mark.parametrize("kind", [GradeRecord, SolveRecord])
def test_show_survives_older_record(store: Store, kind: type[Record]) -> None:
    store.put(key(kind, "night", IDS[0], 1), b"{}")
    text = show_text(store)
    assert re.search(rf"{kind.file} cannot be read: \d+ validation errors for {kind.__name__}\n", text)
    assert ("Not run" in text, "no verdict" in text) == (False, False)
    assert ("Resolved, " in text) == (kind is SolveRecord)
    assert "execute_bash $ seq 1 40" in text


def test_show_escapes_terminal_codes(store: Store) -> None:
    tool_call: Call = (f"tool{ESCAPE}", {f"name{ESCAPE}": f"value{ESCAPE}", "command": ESCAPE}, f"seen{ESCAPE}")
    result = Result(source_call_id="c3-0", content=ESCAPE, extra=ResultExtra(recorded=ESCAPE, exit_code=1))
    whole = change_last_turn(trajectory([tool_call]), result)
    first, second, third = whole.steps
    third = third.model_copy(update={"message": ESCAPE, "reasoning_content": ESCAPE})
    agent = whole.agent.model_copy(update={"name": ESCAPE, "model_name": ESCAPE})
    steps = [first.model_copy(update={"message": ESCAPE}), second, third]
    put_trajectory(store, whole.model_copy(update={"steps": steps, "agent": agent, "notes": ESCAPE}))
    store.put(key(Patch, "night", IDS[0], 1), f"diff --git a/a b/a\n+{ESCAPE}\n".encode())
    store.put(key(TestLog, "night", IDS[0], 1), ESCAPE.encode())
    for full in (False, True):
        text = show_text(store, full=full)
        assert text.count("␛[2J") >= 10
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def change_last_turn(whole: Trajectory, *results: Result) -> Trajectory:
    """Return the trajectory with other results in its last turn."""
    *first, turn = whole.steps
    assert turn.observation
    observation = turn.observation.model_copy(update={"results": list(results)})
    return whole.model_copy(update={"steps": [*first, turn.model_copy(update={"observation": observation})]})


def test_show_marks_malformed_answer(store: Store) -> None:
    whole = trajectory([LONG])
    turn = Turn(step_id=4, source="agent", message="<function=frob>", metrics=metrics(), extra={"malformed": "no_call"})
    put_trajectory(store, whole.model_copy(update={"steps": [*whole.steps, turn]}))
    assert "<function=frob>\nno valid tool call\n" in show_text(store)


def test_show_lists_attempts_not_chosen(store: Store) -> None:
    unchosen = trajectory([LONG], reason=StopReason.MALFORMED)
    put_trajectory(store, trajectory([EDIT]).model_copy(update={"subagent_trajectories": [unchosen]}))
    assert "\nAnother attempt, not graded: malformed answers, 1 turn, " in show_text(store)


def test_show_prints_all_conversations(store: Store) -> None:
    helper, own = trajectory([LONG]), trajectory([EDIT])
    helper = helper.model_copy(update={"extra": helper.extra.model_copy(update={"beside": True})})
    extra = own.extra.model_copy(update={"printed": "thinking aloud"})
    put_trajectory(store, own.model_copy(update={"subagent_trajectories": [helper], "extra": extra}))
    text = show_text(store)
    assert "\nParallel conversation 2: 1 turn\n" in text
    assert "\noutput of the agent program\n" in text
    assert "thinking aloud" in text


def test_show_json_prints_raw_trajectory(store: Store) -> None:
    result = call("show", "night", IDS[0], "--json", "--store", store.url)
    assert result.stdout.encode() == store.get(key(Trajectory, "night", IDS[0], 1))
    whole = trajectory([LONG], reason=StopReason.INTERRUPTED)
    partial(store, "t1", whole)
    result = call("show", "night", IDS[2], "--json", "--store", store.url)
    assert json.loads(result.stdout) == json.loads(whole.to_bytes())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["night", "django__django-9"], "has no instance 'django__django-9' (did you mean"),
        (["night", IDS[0], "--attempt", "2"], f"--attempt: '{IDS[0]}' has 1 attempt in run 'night', not 2"),
        (["night", IDS[2], "--json"], f"'{IDS[2]}' has no trajectory in run 'night'"),
        (["night", "--json"], "--json needs an instance"),
        (["night", "--attempt", "2"], "--attempt needs an instance"),
        (["day", IDS[0]], "there is no run 'day'"),
    ],
)
def test_show_refuses_in_one_line(store: Store, words: list[str], message: str) -> None:
    result = call("show", *words, "--store", store.url)
    assert (result.returncode, result.stderr.count("\n")) == (64, 1), result.stderr
    assert message in result.stderr


def test_show_names_broken_trajectory(store: Store) -> None:
    store.put(key(Trajectory, "night", IDS[0], 1), b'{"steps": ')
    text = show_text(store)
    assert "trajectory.json cannot be read: Expecting value: line 1 column 11 (char 10)\n" in text
    assert "\npatch\n" in text


def test_show_pages_only_at_terminal(store: Store, tmp_path: Path) -> None:
    words = ["show", "night", IDS[0], "--store", store.url]
    plain = call(*words)
    assert plain.returncode == 0, plain.stderr
    assert "\x1b" not in plain.stdout
    pager = tmp_path / "bin" / "less"
    pager.parent.mkdir()
    pager.write_text('#!/bin/sh\necho "paged by less $*"\ncat >/dev/null\n')
    pager.chmod(0o755)
    command = [sys.executable, "-m", "swe_argo.workflows.cli.main", *words]
    environment = {"PATH": f"{pager.parent}:{os.environ['PATH']}"}
    assert "paged by less -FRX" in run_at_terminal(command, 80, 24, environment)[1]
    _, unpaged = run_at_terminal([*command, "--no-pager"], 80, 24, environment)
    assert "paged" not in unpaged
    assert "\x1b[32m" in unpaged


def solved(instance_id: str, replayed: Replayed | None) -> bytes:
    history = History(head="a", refs_removed=0, objects_before=1, objects_after=1, unreachable_after=0, verified=True)
    machine = Machine(backend="local", image="i", image_digest=None, isolation="none", network=False)
    unit: dict[str, Any] = {"instance_id": instance_id, "attempt": 1, "agent": "replay", "patch_bytes": 1}
    end: dict[str, Any] = {"stop_reason": StopReason.FINISHED, "seconds": {}, "history": history, "machine": machine}
    return SolveRecord(**unit, **end, replayed=replayed).to_bytes()


def test_show_lists_refused_hosts(store: Store) -> None:
    record = SolveRecord.from_bytes(solved(IDS[0], None))
    hosts = [EgressHost(host="b.org", port=80, refused="is not an allowed host", count=2)]
    store.put(key(SolveRecord, "night", IDS[0], 1), record.model_copy(update={"egress": hosts}).to_bytes())
    assert re.search(r"Hosts refused to the agent  +b\.org:80 \(2 times\) is not an allowed host\n", show_text(store))


def test_show_prints_recorded_output(store: Store) -> None:
    result = Result(source_call_id="c3-0", content="now", extra=ResultExtra(recorded="then"))
    put_trajectory(store, change_last_turn(trajectory([LONG]), result, Result(content="of no call")))
    text = show_text(store)
    assert "    now\n    (1 line)\n    recorded result:\n    then\n" in text
    assert "\n    of no call\n    (1 line)\n" in text


def test_show_summarizes_replays_of_run(store: Store) -> None:
    plan = read_record(store, Plan, "night")
    assert list(describe_replays(store, plan)) == []
    store.put(key(SolveRecord, "night", IDS[0], 1), solved(IDS[0], Replayed(observations=2, same_patch=True)))
    store.put(key(SolveRecord, "night", IDS[1], 1), solved(IDS[1], Replayed(observations=2, differing=[1])))
    store.put(key(SolveRecord, "night", IDS[2], 1), solved(IDS[2], None))
    assert [text.plain for text in describe_replays(store, plan)] == [
        "replays: 1 of 2 matched their recordings",
        f"  {IDS[1]}: 1 of 2 observations differ from the recording. The recording has no patch. Actions: 1",
    ]


def test_show_names_report_command(store: Store) -> None:
    with pytest.raises(ConfigError, match="has no report yet: swe-argo report night"):
        show.print_stored(store, "night", None, Console(file=io.StringIO()), show.ShowOptions())


def test_show_warns_of_outdated_report(store: Store) -> None:
    store.put(key(Summary, "night"), b'{"format": "another"}')
    with pytest.raises(ConfigError, match=r"from another version: write it again with swe-argo report night --store "):
        show.print_stored(store, "night", None, Console(file=io.StringIO()), show.ShowOptions())


def test_show_lists_unresolved(store: Store) -> None:
    store.put(key(GradeRecord, "night", IDS[0], 1), grade(Outcome.EMPTY_PATCH, IDS[0]).to_bytes())
    partial(store, "t0", trajectory([LONG], reason=StopReason.INTERRUPTED))
    text = io.StringIO()
    show._print_unresolved(store, Run(store, "night"), Console(file=text, width=20))
    assert f"\n{IDS[0]}  no patch" in text.getvalue()
    assert f"\n{IDS[2]}  infrastructure  sandbox_lost: the machine went away\n" in text.getvalue()
    assert f"show one with: swe-argo show night {IDS[0]} --store {store.url}\n" in text.getvalue()


def test_show_works_without_trajectory(store: Store) -> None:
    store.delete_many([key(Trajectory, "night", IDS[0], 1), key(Instance, "night", IDS[0])])
    assert "\nResolved, every listed test passes\n" in show_text(store)
