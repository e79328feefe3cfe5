from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swe_argo.steps.contracts.data import Instance, Patch, Plan
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.record import Place, Record, key
from swe_argo.steps.contracts.recording import Replayed
from swe_argo.steps.contracts.solve_record import History, SolveRecord
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, StopReason, Trajectory, Turn
from swe_argo.steps.contracts.verdict import GradeRecord, Outcome, TestLog
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.api.run import Run
from swe_argo.workflows.cli import show
from swe_argo.workflows.terminal.unit_lines import describe_replays
from tests.steps.agents.solved_units import Call, grade, metrics, trajectory
from tests.steps.test_export import IDS, fill
from tests.workflows.command import swe_argo

ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
LONG: Call = ("execute_bash", {"cmd": "seq 1 40"}, "\n".join(map(str, range(1, 41))) + "\nSteps Remaining: 3")
EDIT: Call = ("file_editor", {"command": "create", "path": "/testbed/a.py", "file_text": "one\ntwo\n"}, "made")


@pytest.fixture
def store(store: Store) -> Store:
    fill(store)
    put(store, trajectory([LONG], [EDIT], [("finish", {"command": "submit"}, "")]))
    return store


def put(store: Store, whole: Trajectory, instance_id: str = IDS[0]) -> None:
    store.put(key(Trajectory, "night", instance_id, 1), whole.to_bytes())


def partial(store: Store, name: str, whole: Trajectory, instance_id: str = IDS[2]) -> None:
    folder = Place.UNIT.format(run="night", instance=instance_id, attempt=1)
    store.put(f"{folder}/tries/{name}/{Trajectory.file}", whole.to_bytes())


def shown(store: Store, instance_id: str = IDS[0], **how: Any) -> str:
    text = io.StringIO()
    show.show(store, "night", instance_id, Console(file=text, width=100), show.ShowOptions(**how))
    return text.getvalue()


def test_a_trajectory_is_shown_turn_by_turn(store: Store) -> None:
    text = shown(store)
    assert re.search("\n  Agent +r2egym, openai/m, function calling\n  Turns +3 of the agent, 3 calls of tools\n", text)
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


def test_long_texts_are_folded_unless_all_is_asked_for(store: Store) -> None:
    store.put(key(Patch, "night", IDS[0], 1), b"diff --git a/a b/a\n" + b"+x\n" * 100 + b"+last\n")
    folded, full = shown(store), shown(store, full=True)
    assert "    12\n    … 29 more lines (--full)\n" in folded
    assert "    40\n" not in folded
    assert "… 42 more lines (--full)" in folded
    assert "    40\n" in full
    assert "+last\n" in full
    assert "more lines" not in full


def test_all_is_whole_where_all_is_asked_for(store: Store) -> None:
    names = [f"test_{n}_{'x' * 400}" for n in range(250)]
    unresolved = grade(Outcome.UNRESOLVED, IDS[0]).model_copy(update={"failing_tests": names})
    store.put(key(GradeRecord, "night", IDS[0], 1), unresolved.to_bytes())
    store.put(key(TestLog, "night", IDS[0], 1), f"{'y' * 1_500}\n{'z' * 3_000}\n".encode())
    for n in range(25):
        failure = Failure(
            step="solve",
            instance_id=IDS[0],
            attempt=1,
            failure_class=FailureClass.SANDBOX_LOST,
            reason=f"loss {n} " + "w" * 900,
            exit_code=75,
            occurred_at=f"2099-01-01T00:00:{n:02d}+00:00",
        )
        store.put(key(Failure, "night", IDS[0], 1, f"try-{n}"), failure.to_bytes())
    folded, full = shown(store), shown(store, full=True)
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


def test_failing_tests_and_verdict_are_told(store: Store) -> None:
    store.put(key(GradeRecord, "night", IDS[0], 1), grade(Outcome.UNRESOLVED, IDS[0]).to_bytes())
    text = shown(store)
    assert "\nUnresolved, some listed test does not pass\n" in text
    assert "\n  Fail to pass  0 of 1 pass\n  Pass to pass  2 of 2 pass\n" in text
    assert "\n  failing: test_a\n" in text


def test_of_a_unit_that_failed_the_newest_try_is_shown(store: Store) -> None:
    partial(store, "t0", trajectory([("execute_bash", {"cmd": "old"}, "")], reason=StopReason.INTERRUPTED))
    partial(store, "t1", trajectory([("execute_bash", {"cmd": "new"}, "")], reason=StopReason.INTERRUPTED))
    text = shown(store, IDS[2])
    assert "\nInfrastructure, no verdict: the world failed, not the agent\n" in text
    assert "failed try of solve, sandbox_lost, 2026-11-22 01:00:00 UTC: the machine went away\n" in text
    assert "\nits turns are of its newest try, which failed\n" in text
    assert "execute_bash $ new\n" in text
    assert "$ old" not in text
    assert "stopped: interrupted, 1 turn, " in text


def test_a_try_that_was_killed_is_shown_where_no_other_left_a_trajectory(store: Store) -> None:
    partial(store, "killed", trajectory([("execute_bash", {"cmd": "cut short"}, "")]))
    assert "execute_bash $ cut short\n" in shown(store, IDS[2])
    partial(store, "t0", trajectory([("execute_bash", {"cmd": "told why"}, "")]))
    assert "execute_bash $ told why\n" in shown(store, IDS[2])


def test_failed_tries_are_told_oldest_first_whatever_they_are_called(store: Store) -> None:
    for name, second in (("b-pod", 1), ("a-pod", 2), ("c-pod", 2)):
        failure = Failure(
            step="solve",
            instance_id=IDS[2],
            attempt=1,
            failure_class=FailureClass.SANDBOX_LOST,
            reason=f"{name} was lost",
            exit_code=75,
            occurred_at=f"2099-01-01T00:00:0{second}+00:00",
        )
        store.put(key(Failure, "night", IDS[2], 1, name), failure.to_bytes())
        partial(store, name, trajectory([("execute_bash", {"cmd": f"echo {name}"}, "")]))
    text = shown(store, IDS[2])
    assert re.findall(r"(.-pod) was lost", text) == ["b-pod", "a-pod", "c-pod"]
    assert "execute_bash $ echo c-pod\n" in text


@pytest.mark.parametrize("kind", [GradeRecord, SolveRecord])
def test_a_record_of_another_version_costs_its_own_line_only(store: Store, kind: type[Record]) -> None:
    store.put(key(kind, "night", IDS[0], 1), b"{}")
    text = shown(store)
    assert re.search(rf"{kind.file} cannot be read: \d+ validation errors for {kind.__name__}\n", text)
    assert ("Not run" in text, "no verdict" in text) == (False, False)
    assert ("Resolved, " in text) == (kind is SolveRecord)
    assert "execute_bash $ seq 1 40" in text


def test_nothing_that_a_terminal_acts_on_gets_there(store: Store) -> None:
    call: Call = (f"tool{ESCAPE}", {f"name{ESCAPE}": f"value{ESCAPE}", "command": ESCAPE}, f"seen{ESCAPE}")
    whole = trajectory([call])
    first, second, third = whole.steps
    third = third.model_copy(update={"message": ESCAPE, "reasoning_content": ESCAPE})
    results = [Result(source_call_id="c3-0", content=ESCAPE, extra=ResultExtra(recorded=ESCAPE, exit_code=1))]
    third = third.model_copy(update={"observation": third.observation.model_copy(update={"results": results})})  # type: ignore[union-attr]
    agent = whole.agent.model_copy(update={"name": ESCAPE, "model_name": ESCAPE})
    steps = [first.model_copy(update={"message": ESCAPE}), second, third]
    put(store, whole.model_copy(update={"steps": steps, "agent": agent, "notes": ESCAPE}))
    store.put(key(Patch, "night", IDS[0], 1), f"diff --git a/a b/a\n+{ESCAPE}\n".encode())
    store.put(key(TestLog, "night", IDS[0], 1), ESCAPE.encode())
    for full in (False, True):
        text = shown(store, full=full)
        assert text.count("␛[2J") >= 10
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_a_malformed_answer_is_told_as_one(store: Store) -> None:
    whole = trajectory([LONG])
    turn = Turn(step_id=4, source="agent", message="<function=frob>", metrics=metrics(), extra={"malformed": "no_call"})
    put(store, whole.model_copy(update={"steps": [*whole.steps, turn]}))
    assert "<function=frob>\nno call that could be made\n" in shown(store)


def test_an_observation_that_belongs_to_no_call_is_shown(store: Store) -> None:
    whole = trajectory([LONG])
    *first, turn = whole.steps
    assert turn.observation
    results = [*turn.observation.results, Result(content="by the way")]
    turn = turn.model_copy(update={"observation": turn.observation.model_copy(update={"results": results})})
    put(store, whole.model_copy(update={"steps": [*first, turn]}))
    assert "\n    by the way\n    (1 line)\n" in shown(store)


def test_attempts_that_were_not_chosen_are_told(store: Store) -> None:
    other = trajectory([LONG], reason=StopReason.MALFORMED)
    put(store, trajectory([EDIT]).model_copy(update={"subagent_trajectories": [other]}))
    assert "\nAnother attempt, not graded: malformed answers, 1 turn, " in shown(store)


def test_further_conversations_and_what_the_agent_program_printed_are_told(store: Store) -> None:
    helper, own = trajectory([LONG]), trajectory([EDIT])
    helper = helper.model_copy(update={"extra": helper.extra.model_copy(update={"beside": True})})
    extra = own.extra.model_copy(update={"printed": "thinking aloud"})
    put(store, own.model_copy(update={"subagent_trajectories": [helper], "extra": extra}))
    said = shown(store)
    assert "\nConversation 2, beside the agent's own: 1 turn\n" in said
    assert "\nthe agent program printed\n" in said
    assert "thinking aloud" in said


def test_the_raw_file_can_be_had(store: Store) -> None:
    done = swe_argo("show", "night", IDS[0], "--json", "--store", store.url)
    assert done.stdout.encode() == store.get(key(Trajectory, "night", IDS[0], 1))
    whole = trajectory([LONG], reason=StopReason.INTERRUPTED)
    partial(store, "t1", whole)
    done = swe_argo("show", "night", IDS[2], "--json", "--store", store.url)
    assert json.loads(done.stdout) == json.loads(whole.to_bytes())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["night", "django__django-9"], "has no instance 'django__django-9' (did you mean"),
        (["night", IDS[0], "--attempt", "2"], f"--attempt: '{IDS[0]}' has 1 attempt in run 'night', not 2"),
        (["night", IDS[2], "--json"], f"'{IDS[2]}' has no trajectory in run 'night'"),
        (["night", "--json"], "--json prints the trajectory of one instance: name it"),
        (["night", "--attempt", "2"], "--attempt is of one instance: name it"),
        (["day", IDS[0]], "there is no run 'day'"),
    ],
)
def test_a_wrong_request_is_one_line(store: Store, words: list[str], told: str) -> None:
    done = swe_argo("show", *words, "--store", store.url)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1), done.stderr
    assert told in done.stderr


def test_a_trajectory_that_cannot_be_read_is_told_and_the_rest_is_shown(store: Store) -> None:
    store.put(key(Trajectory, "night", IDS[0], 1), b'{"steps": ')
    text = shown(store)
    assert "trajectory.json cannot be read: Expecting value: line 1 column 11 (char 10)\n" in text
    assert "\npatch\n" in text


def test_a_pipe_gets_plain_text_and_a_terminal_pages(store: Store, tmp_path: Path) -> None:
    words = ["show", "night", IDS[0], "--store", store.url]
    plain = swe_argo(*words)
    assert plain.returncode == 0, plain.stderr
    assert "\x1b" not in plain.stdout
    pager = tmp_path / "bin" / "less"
    pager.parent.mkdir()
    pager.write_text('#!/bin/sh\necho "paged by less $*"\ncat >/dev/null\n')
    pager.chmod(0o755)
    environment = {"PATH": f"{pager.parent}:{os.environ['PATH']}", "TERM": "xterm-256color"}
    assert "paged by less -FRX" in at_a_terminal(words, environment)
    unpaged = at_a_terminal([*words, "--no-pager"], environment)
    assert "paged" not in unpaged
    assert "\x1b[32m" in unpaged


def at_a_terminal(words: list[str], environment: dict[str, str]) -> str:
    here, there = pty.openpty()
    command = [sys.executable, "-m", "swe_argo.workflows.cli.main", *words]
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=os.environ | environment) as process:
        os.close(there)
        found = b""
        while True:
            try:
                part = os.read(here, 65536)
            except OSError:  # the other end is closed
                break
            found += part
        process.wait(60)
    os.close(here)
    return found.decode()


# -- replays ---------------------------------------------------------------------------------------------------------


def solved(instance_id: str, replayed: Replayed | None) -> bytes:
    history = History(head="a", refs_removed=0, objects_before=1, objects_after=1, unreachable_after=0, verified=True)
    machine = Machine(backend="local", image="i", image_digest=None, isolation="none", network=False)
    return SolveRecord(
        instance_id=instance_id,
        attempt=1,
        agent="replay",
        stop_reason=StopReason.FINISHED,
        history=history,
        machine=machine,
        seconds={},
        patch_bytes=1,
        replayed=replayed,
    ).to_bytes()


@pytest.mark.parametrize(
    ("replayed", "told"),
    [
        (
            Replayed(observations=3, same_patch=True),
            "replayed: 0 of 3 observations came out otherwise. The patch is the same.\n",
        ),
        (
            Replayed(observations=3, differing=[2], same_patch=False),
            "replayed: 1 of 3 observations came out otherwise. The patch is another one. Actions: 2\n",
        ),
        (
            Replayed(observations=0, same_patch=None),
            "replayed: No observation could be compared. The recording has no patch.\n",
        ),
    ],
)
def test_what_came_of_a_replay_is_told(store: Store, replayed: Replayed, told: str) -> None:
    store.put(key(SolveRecord, "night", IDS[0], 1), solved(IDS[0], replayed))
    assert told in shown(store)


def test_a_recorded_observation_stands_beside_the_one_that_differs(store: Store) -> None:
    whole = trajectory([LONG])
    turn = whole.steps[2]
    results = [Result(source_call_id="c3-0", content="now", extra=ResultExtra(recorded="then"))]
    assert turn.observation
    turn = turn.model_copy(update={"observation": turn.observation.model_copy(update={"results": results})})
    put(store, whole.model_copy(update={"steps": [*whole.steps[:2], turn]}))
    assert "    now\n    (1 line)\n    in the recording it was:\n    then\n" in shown(store)


def test_the_replays_of_a_run_are_told_together(store: Store) -> None:
    plan = record_of(store, Plan, "night")
    assert list(describe_replays(store, plan)) == []
    store.put(key(SolveRecord, "night", IDS[0], 1), solved(IDS[0], Replayed(observations=2, same_patch=True)))
    store.put(key(SolveRecord, "night", IDS[1], 1), solved(IDS[1], Replayed(observations=2, differing=[1])))
    store.put(key(SolveRecord, "night", IDS[2], 1), solved(IDS[2], None))
    assert [text.plain for text in describe_replays(store, plan)] == [
        "replays: 1 of 2 came out as their recordings",
        f"  {IDS[1]}: 1 of 2 observations came out otherwise. The recording has no patch. Actions: 1",
    ]


def test_a_run_without_a_report_is_told_the_way_out(store: Store) -> None:
    with pytest.raises(ConfigError, match="has no report yet: swe-argo report night"):
        show.show(store, "night", None, Console(file=io.StringIO()), show.ShowOptions())


def test_a_report_of_another_version_is_told_the_way_out(store: Store) -> None:
    store.put(key(Summary, "night"), b'{"format": "another"}')
    with pytest.raises(
        ConfigError, match=r"of another version of swe-argo: swe-argo report night --store .* writes it"
    ):
        show.show(store, "night", None, Console(file=io.StringIO()), show.ShowOptions())


def test_what_was_not_resolved_is_told_with_its_class_and_the_command_that_shows_it(store: Store) -> None:
    store.put(key(GradeRecord, "night", IDS[0], 1), grade(Outcome.EMPTY_PATCH, IDS[0]).to_bytes())
    partial(store, "t0", trajectory([LONG], reason=StopReason.INTERRUPTED))
    text = io.StringIO()
    show._not_resolved(store, Run(store, "night"), Console(file=text, width=20))
    assert f"\n{IDS[0]}  no patch" in text.getvalue()
    assert f"\n{IDS[2]}  infrastructure  sandbox_lost: the machine went away\n" in text.getvalue()
    assert f"one of them: swe-argo show night {IDS[0]} --store {store.url}\n" in text.getvalue()


def test_an_instance_without_any_trajectory_is_shown_too(store: Store) -> None:
    store.delete_many([key(Trajectory, "night", IDS[0], 1), key(Instance, "night", IDS[0])])
    assert "\nResolved, every listed test passes\n" in shown(store)
