"""Solved units, written as ATIF, give the same observations and patch when replayed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from swe_argo.steps.agents import replay
from swe_argo.steps.agents.formats import atif, reading
from swe_argo.steps.agents.submission import extract, record_start
from swe_argo.steps.agents.task import act
from swe_argo.steps.contracts.agent_spec import AgentSpec, agent_of
from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.recording import Action, Recording, Replayed
from swe_argo.steps.contracts.solve_record import SolveRecord
from tests.model_server import Answer, Script, call, play
from tests.steps.agents.machine import Box, git, shell
from tests.steps.agents.solved_units import solved_unit
from tests.steps.agents.tasks import open_task, recorder
from tests.steps.solve_process import SolveProcess

ID = "a__b-1"
ODD = r"printf 'one\r\ntwo' >crlf.txt; printf 'caf\351\n' >latin.txt; printf '\0\1\377' >bytes.bin; git rm -q b/c.py"
MENDS = {"command": "str_replace", "path": "/testbed/a.py", "old_str": "a = 2", "new_str": "a = 3"}
ANSWER = "<patch>\ndiff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 2\n+a = 3\n</patch>"


def run_odd(name: str) -> Answer:
    return call("execute_bash", **{name: f"cd b; {ODD.replace('git rm -q b/', 'rm ')}; ls; exit 3"})


EDIT = "sed -i 's/2/3/' a.py && git diff -- a.py > patch.txt"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"
SCRIPTS: dict[str, Script] = {
    "r2egym": play(run_odd("cmd"), call("file_editor", **MENDS), call("finish", command="submit")),
    "openhands": play(run_odd("command"), call("str_replace_editor", **MENDS), call("finish", message="Done.")),
    "sweagent": play(run_odd("command"), call("str_replace_editor", **MENDS), call("submit")),
    "oneshot": play(Answer(ANSWER)),
    "mini-swe-agent": play(*(call("bash", command=command) for command in ("cat a.py; exit 4", EDIT, SUBMIT))),
}


def replay_solved(box: Box, folder: Path, agent: str, script: Script) -> Replayed:
    """Solve the issue, write the unit, and replay what is read from it; each in the repository as it was."""
    head = git(box.testbed, "rev-parse", "HEAD")
    start = record_start(box.sandbox, head)
    with open_task(script, box.sandbox, agent, instruction="{{ problem_statement }}") as (task, _):
        whole = task.recorder.trajectory(act(agent_of(task.spec), task))
    patch = extract(box.sandbox, start).patch if task.patch is None else task.patch
    (folder / "trajectory.json").write_bytes(atif.write(replace(solved_unit(), trajectory=whole)))
    (folder / "patch.diff").write_bytes(patch)
    shell(box.testbed, "git reset -q --hard; git clean -qfd")
    recording = Recording.from_bytes(reading.read(str(folder), {ID: "/testbed"}, [ID]).by_id[ID].to_bytes())
    start, record = record_start(box.sandbox, head), recorder()
    record.add_message("user", "an issue")
    replay.perform(recording, box.sandbox, AgentSpec(name="replay"), record, time.monotonic)
    answer = replay.recorded_answer(recording)
    return replay.compare_with_recording(
        recording, record, extract(box.sandbox, start).patch if answer is None else answer
    )


@pytest.mark.parametrize("agent", SCRIPTS)
def test_solved_units_can_be_replayed(box: Box, tmp_path: Path, agent: str) -> None:
    if agent == "mini-swe-agent":
        pytest.importorskip("minisweagent", reason="needs the extra mini-swe-agent")
    count = {"oneshot": 1, "sweagent": 4}.get(agent, 3)  # it submits twice
    assert replay_solved(box, tmp_path, agent, SCRIPTS[agent]) == Replayed(observations=count, same_patch=True)


@pytest.mark.parametrize("text", ["", "I do not know.", ANSWER.replace("a = 2", "a = 7")])
def test_oneshot_answer_is_the_patch(box: Box, tmp_path: Path, text: str) -> None:
    expected = Replayed(observations=int("diff" in text), same_patch=True)
    assert replay_solved(box, tmp_path, "oneshot", play(Answer(text))) == expected


def test_replayed_answer_keeps_its_bytes(tmp_path: Path) -> None:
    """Whether it applies or not, as the agent itself did: the verdict is the same."""
    desk = SolveProcess(tmp_path, {"name": "replay"}, {"allow_host": True})
    answer = "\ndiff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-caf\udce9\n+a = 3\n"
    action = Action(tool="apply_diff", arguments={"patch": answer}, observation="taken by git apply --verbose")
    desk.put(Recording(source="t", scaffold="oneshot", actions=[action], patch=answer))
    result = desk.solve()
    assert result.returncode == 0, result.stderr
    assert desk.get(Patch).data == answer.encode("utf-8", "surrogateescape")
    assert desk.get(SolveRecord).replayed == Replayed(observations=1, differing=[1], same_patch=True)
