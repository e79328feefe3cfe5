"""A run's units, in every format that export knows, performed again: they come out the same."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import get_args

import pytest

from swe_argo.steps.agents import loop, mini_swe_agent, oneshot
from swe_argo.steps.agents.formats.writers import Format
from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.agents.mini_swe_agent import library
from swe_argo.steps.agents.patch import extract, record_start
from swe_argo.steps.agents.replay import agent, recordings
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Instance, Patch, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.recording import Action, Recording, Replayed
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import AgentInfo, StopReason, Trajectory
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.export import export
from swe_argo.steps.store import Store
from tests.model_server import Answer, Script, call, play
from tests.steps.agents.machine import Box, git
from tests.steps.agents.mini_answers import EDIT, SUBMIT, in_turn, say
from tests.steps.agents.solved_units import run_file
from tests.steps.agents.tasks import asked, instance
from tests.steps.solve_process import SolveProcess

ID = "a__b-1"
ODD = r"printf 'one\r\ntwo' >crlf.txt; printf 'caf\351\n' >latin.txt; printf '\0\1\377' >bytes.bin; git rm -q b/c.py"
MENDS = {"command": "str_replace", "path": "/testbed/a.py", "old_str": "a = 2", "new_str": "a = 3"}
ANSWER = "<patch>\ndiff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 2\n+a = 3\n</patch>"


def shell(name: str) -> Answer:
    return call("execute_bash", **{name: f"cd b; {ODD.replace('git rm -q b/', 'rm ')}; ls; exit 3"})


SCRIPTS: dict[str, Script] = {
    "r2egym": play(shell("cmd"), call("file_editor", **MENDS), call("finish", command="submit")),
    "openhands": play(shell("command"), call("str_replace_editor", **MENDS), call("finish", message="Done.")),
    "sweagent": play(shell("command"), call("str_replace_editor", **MENDS), call("submit")),
    "oneshot": play(Answer(ANSWER)),
}


def act(task: Task) -> StopReason:
    if task.spec.name == "oneshot":
        return oneshot.act(task)
    return mini_swe_agent.act(task) if task.spec.name == "mini-swe-agent" else loop.act(task)


def solved(box: Box, store: Store, agent: str, script: Script) -> None:
    """A run of one unit that this agent solved, and the repository as it was."""
    start = record_start(box.sandbox, git(box.testbed, "rev-parse", "HEAD"))
    with asked(script, box.sandbox, agent, instruction="{{ problem_statement }}") as (task, _):
        whole = task.journal.trajectory(act(task))
    patch = extract(box.sandbox, start).data if task.patch is None else task.patch
    keep(store, agent, whole, patch)
    git(box.testbed, "reset", "-q", "--hard")
    git(box.testbed, "clean", "-qfd")


def keep(store: Store, agent: str, whole: Trajectory, patch: bytes) -> None:
    unit = Unit(instance_id=ID, attempt=1, begins=Stage.SOLVE, repo="a/b", image="i")
    store.put(key(RunFile, "night"), run_file(agent).to_bytes())
    store.put(key(Plan, "night"), Plan(run_id="night", units=[unit]).to_bytes())
    store.put(key(Instance, "night", ID, 1), instance().to_bytes())
    store.put(key(Trajectory, "night", ID, 1), whole.to_bytes())
    store.put(key(Patch, "night", ID, 1), patch)


def replayed(box: Box, recording: Recording) -> tuple[Replayed, Journal]:
    """What comes of a recording that plan wrote and solve reads, and the repository as it was."""
    recording = Recording.from_bytes(recording.to_bytes())
    start = record_start(box.sandbox, git(box.testbed, "rev-parse", "HEAD"))
    journal = Journal(AgentInfo(name="replay", version="1"), "run", ID, 1)
    journal.add_message("user", "an issue")
    agent.perform(recording, box.sandbox, AgentSpec(name="replay"), journal, time.monotonic)
    answer = agent.recorded_answer(recording)
    found = agent.compare_with_recording(
        recording, journal, extract(box.sandbox, start).data if answer is None else answer
    )
    git(box.testbed, "reset", "-q", "--hard")
    git(box.testbed, "clean", "-qfd")
    return found, journal


def in_every_format(box: Box, store: Store, out: Path) -> dict[str, Replayed]:
    found = {}
    for form in get_args(Format):
        export(store, "night", form, out / form)
        found[form], _ = replayed(box, recordings.read(str(out / form), [ID], [ID]).by_id[ID])
    return found


@pytest.mark.parametrize("agent", SCRIPTS)
def test_every_scaffold_comes_out_the_same_from_every_format(
    box: Box, store: Store, tmp_path: Path, agent: str
) -> None:
    solved(box, store, agent, SCRIPTS[agent])
    told = {"oneshot": 1, "sweagent": 4}.get(agent, 3)  # it submits twice
    for form, found in in_every_format(box, store, tmp_path).items():
        assert found == Replayed(observations=0 if form == "preds" else told, same_patch=True), form


def test_a_mini_swe_agent_comes_out_the_same_from_every_format(box: Box, store: Store, tmp_path: Path) -> None:
    try:
        library.load()
    except ConfigError as missing:
        pytest.skip(str(missing))
    script = in_turn(*(say(command, True) for command in ("cat a.py; exit 4", EDIT, SUBMIT)))
    solved(box, store, "mini-swe-agent", script)
    for form, found in in_every_format(box, store, tmp_path).items():
        assert found == Replayed(observations=0 if form == "preds" else 3, same_patch=True), form


@pytest.mark.parametrize("text", ["", "I do not know.", ANSWER.replace("a = 2", "a = 7")])
def test_an_answer_of_one_call_is_the_patch_whether_it_applies_or_not(
    box: Box, store: Store, tmp_path: Path, text: str
) -> None:
    solved(box, store, "oneshot", play(Answer(text)))
    found = in_every_format(box, store, tmp_path)
    told = int("diff" in text)
    for form in ("r2egym", "openhands", "sweagent", "mini", "atif"):
        assert found[form] == Replayed(observations=told, same_patch=True), form
    assert found["preds"] == Replayed(observations=0, same_patch=not text)


def test_an_agent_that_did_nothing_comes_out_the_same(box: Box, store: Store, tmp_path: Path) -> None:
    solved(box, store, "r2egym", play(call("finish", command="submit")))
    for form, found in in_every_format(box, store, tmp_path).items():
        assert found == Replayed(observations=0 if form == "preds" else 1, same_patch=True), form


@pytest.mark.parametrize(
    "patch", [None, "", " \n", "no patch", "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 9\n+a = 3\n"]
)
def test_a_prediction_is_its_patch_applied(box: Box, tmp_path: Path, patch: str | None) -> None:
    """One that does not apply is an observation."""
    file = tmp_path / "all_preds.jsonl"
    file.write_text(json.dumps({"instance_id": ID, "model_name_or_path": "m", "model_patch": patch}))
    recording = recordings.read(str(file), [ID], [ID]).by_id[ID]
    found, journal = replayed(box, recording)
    blank = not (patch or "").strip()
    assert len(recording.actions) == len(journal.turns) - 1 == int(not blank)
    assert found == Replayed(observations=0, same_patch=blank)
    if not blank:
        (result,) = journal.turns[-1].observation.results if journal.turns[-1].observation else []
        assert (result.content or "").startswith("not taken:\n")
        assert result.extra
        assert result.extra.exit_code == 1


def test_the_step_gives_what_was_answered_byte_for_byte(tmp_path: Path) -> None:
    """Whether it applies or not, as the agent itself did: the verdict is the same."""
    desk = SolveProcess(tmp_path, {"name": "replay"}, {"allow_host": True})
    answer = "\ndiff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-caf\udce9\n+a = 3\n"
    action = Action(tool="apply_diff", arguments={"patch": answer}, observation="taken by git apply --verbose")
    desk.put(Recording(source="t", scaffold="oneshot", actions=[action], patch=answer))
    done = desk.solve()
    assert done.returncode == 0, done.stderr
    assert desk.get(Patch).data == answer.encode("utf-8", "surrogateescape")
    assert desk.get(SolveRecord).replayed == Replayed(observations=1, differing=[1], same_patch=True)
