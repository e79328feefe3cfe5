"""Whole episodes of the installed verifiers on backend local: rewards, limits, failures."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.model_server import Answer, Call, Fault, Script, call, play
from tests.model_server.answers import error
from tests.rollouts.cancelling import cancel_where
from tests.steps.contracts.test_verdict import graded

vf = pytest.importorskip("verifiers.v1", reason="needs verifiers: make test-verifiers")

from swe_argo.steps.host.folders import end_processes, private_folder  # noqa: E402
from swe_argo.workflows.rollouts.rollout import LiveRollout  # noqa: E402
from tests.verifiers.episodes import (  # noqa: E402
    DONE,
    GOLD,
    INSTANCE,
    SOLVE,
    SUBMIT,
    export_failing,
    export_mini,
    make_env,
    play_episode,
)

Sandboxes = Callable[[], list[str]]
SLOW_BACKEND = """
import time

from swe_argo.steps.sandbox.local import backend

mini_images = "folders"


def connect(spec):
    local = backend.connect(spec)
    create = local.create
    local.create = lambda request: (time.sleep(2), create(request))[1]
    return local
"""
INVALID = GOLD.replace("separator", "nothing_that_is_there")


def trace_of(data: Path, script: Script, **fields: Any) -> Any:
    """The trace of one episode; ``fields``: of the environment."""
    episode = asyncio.run(play_episode(make_env(data, **fields), script))
    assert not episode.errors
    [trace] = episode.traces
    return trace


def seeing(seen: list[str], *items: Any) -> Script:
    """A conversation whose newest messages are looked at."""
    script = play(*items)

    def look(request: dict[str, Any]) -> Answer | Fault:
        seen.append(str(request["messages"][-1]["content"]))
        return script(request)

    return look


def test_the_verified_patch_gives_reward_1(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SUBMIT))
    assert (trace.ok, trace.reward, trace.metrics) == (True, 1.0, {"acc": 1.0, "suspect": 0.0})
    assert (trace.info["outcome"], trace.info["patch"]) == ("resolved", GOLD)


@pytest.mark.parametrize("last", [call("submit_solution"), DONE])
def test_what_was_changed_by_commands_is_the_solution_submitted_or_not(exported: Path, last: Answer) -> None:
    assert trace_of(exported, play(SOLVE, last)).reward == 1.0


@pytest.mark.parametrize(
    ("first", "outcome"), [(DONE, "empty_patch"), (call("bash", command="echo >> README.md"), "unresolved")]
)
def test_another_solution_gives_reward_0(exported: Path, sandboxes: Sandboxes, first: Answer, outcome: str) -> None:
    trace = trace_of(exported, play(first, DONE))
    assert (trace.ok, trace.reward, trace.info["outcome"]) == (True, 0.0, outcome)
    assert trace.rewards["reward"].score == 0.0


def test_an_invalid_patch_is_told_and_may_be_mended(exported: Path) -> None:
    seen: list[str] = []
    assert trace_of(exported, seeing(seen, call("submit_solution", patch=INVALID), SUBMIT)).reward == 1.0
    assert "The patch was not taken: it does not apply" in seen[1]


def test_an_invalid_patch_that_is_not_mended_costs_its_penalty(exported: Path) -> None:
    options = {"task": {"invalid_patch_penalty": 0.5}}
    trace = trace_of(exported, play(call("submit_solution", patch=INVALID), DONE), taskset=options)
    assert (trace.reward, trace.info["outcome"]) == (-0.5, "patch_does_not_apply")


def test_reward_of_doubtful_verdict_follows_the_task_options(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def grade(*_: object) -> SimpleNamespace:
        return SimpleNamespace(record=record)

    monkeypatch.setattr(LiveRollout, "grade", grade)
    record = graded("suspect", "contradicted")
    trace = trace_of(exported, play(SUBMIT))
    assert (trace.ok, trace.reward, trace.metrics) == (True, 0.0, {"acc": 1.0, "suspect": 1.0})
    record = graded("unconfirmed", "not_confirmed")
    dropped = trace_of(exported, play(SUBMIT))
    assert (dropped.ok, dropped.rewards) == (False, {"reward": None})
    assert "the rollout is dropped" in dropped.last_error.message
    assert trace_of(exported, play(SUBMIT), taskset={"task": {"unconfirmed": "keep"}}).reward == 1.0


def test_an_episode_has_one_sandbox_and_its_commands_go_on_in_it(exported: Path, sandboxes: Sandboxes) -> None:
    there: list[list[str]] = []
    seen: list[str] = []
    commands = [call("bash", command=line) for line in ("cd slugkit && export A=1", 'echo "$PWD $A"')]
    script = seeing(seen, *commands, DONE)

    def counting(request: dict[str, Any]) -> Answer | Fault:
        there.append(sandboxes())
        return script(request)

    trace = trace_of(exported, counting)
    assert len(there) == 3
    assert all(each == there[0] and len(each) == 1 for each in there)
    assert seen[2] == "Exit code: 0\n/testbed/slugkit 1"
    assert (trace.num_turns, trace.num_branches) == (3, 1)


def test_calls_that_cannot_be_made_are_told_and_the_work_goes_on(exported: Path) -> None:
    seen: list[str] = []
    wrong = [Call("python"), Call("bash", "{'command'"), Call("bash", "[]"), Call("bash")]
    trace = trace_of(exported, seeing(seen, *(Answer(calls=(each,)) for each in wrong), SUBMIT))
    assert trace.reward == 1.0
    assert seen[1] == "There is no tool 'python'; there are bash and submit_solution."
    assert seen[2].startswith("The arguments of bash are no JSON: ")
    assert seen[3] == "The arguments of bash are to be a JSON object."
    assert seen[4].startswith("bash needs a command")


def test_several_calls_of_one_answer_come_one_after_another(exported: Path) -> None:
    seen: list[str] = []
    lines = ("sleep 1; echo one >> /tmp/order", "echo two >> /tmp/order", "echo $(cat /tmp/order)")
    several = Answer(calls=tuple(Call("bash", {"command": line}) for line in lines))
    trace_of(exported, seeing(seen, several, DONE))
    assert seen[1] == "Exit code: 0\none two"


def test_what_is_there_at_the_last_turn_is_graded(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SOLVE, call("bash", command="ls")), agent={"max_turns": 3})
    assert (trace.ok, trace.stop_condition, trace.num_turns, trace.reward) == (True, "max_turns", 3, 1.0)


def test_what_is_there_when_the_runs_time_is_over_is_graded(
    isolation: None, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    agent = {"timeout_s": 6, "command_timeout_s": 60}
    data = export_mini(tmp_path / "out", agent=agent, select={"instance_ids": [INSTANCE]})
    trace = trace_of(data, play(SOLVE, call("bash", command="sleep 600")))
    assert (trace.ok, trace.reward, trace.num_turns) == (True, 1.0, 2)


def test_what_is_there_when_the_time_of_verifiers_is_over_is_graded(exported: Path, sandboxes: Sandboxes) -> None:
    script = play(SOLVE, call("bash", command="sleep 600"))
    trace = trace_of(exported, script, agent={"timeout": {"rollout": 6}})
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "agent_timeout", 1.0)


def test_a_conversation_that_is_too_long_ends_and_is_graded(exported: Path) -> None:
    too_long = error(400, "This model's maximum context length is 4096 tokens.", "context_length_exceeded")
    trace = trace_of(exported, play(SOLVE, too_long))
    assert (trace.ok, trace.reward) == (True, 1.0)


def test_a_model_that_breaks_its_sandbox_is_graded(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SOLVE, call("bash", command="kill -9 -1; kill -9 1; rm -rf /testbed"), DONE))
    assert (trace.ok, trace.reward) == (True, 0.0)


def test_a_sandbox_that_the_world_lost_before_the_work_or_in_grading_is_tried_again(
    isolation: None, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    data = export_failing(tmp_path, "solve 1", "grade 1", retries=1)
    assert trace_of(data, play(SUBMIT)).reward == 1.0
    assert not (tmp_path / "orders").read_text()


@pytest.mark.parametrize("role", ["solve", "grade"])
def test_what_the_world_lost_for_good_is_an_error_without_a_reward(
    isolation: None, tmp_path: Path, sandboxes: Sandboxes, role: str
) -> None:
    trace = trace_of(export_failing(tmp_path, *[f"{role} 1"] * 2, retries=1), play(SUBMIT))
    assert (trace.ok, trace.has_error, trace.rewards) == (False, True, {})
    [lost] = trace.errors
    assert lost.type == "SandboxError"
    assert "the node went away" in lost.message


def test_a_sandbox_that_is_lost_in_the_midst_is_an_error_and_is_tried_again_where_verifiers_is_told_to(
    exported: Path, sandboxes: Sandboxes
) -> None:
    def losing(request: dict[str, Any]) -> Answer:
        [name] = sandboxes()
        parent = private_folder()
        parent.rmdir()
        end_processes(parent.parent / name)
        shutil.rmtree(parent.parent / name, ignore_errors=True)
        return call("bash", command="ls")

    trace = trace_of(exported, losing)
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {}, "SandboxError")

    lost: list[bool] = []

    def losing_once(request: dict[str, Any]) -> Answer:
        if lost:
            return SUBMIT
        lost.append(True)
        return losing(request)

    rules = {"retries": {"rules": [{"type": "SandboxError", "max_retries": 1}]}}
    trace = trace_of(exported, losing_once, agent=rules)
    assert (trace.ok, trace.reward) == (True, 1.0)


def test_an_endpoint_that_fails_is_an_error_without_a_reward(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SOLVE, Fault(400, {"error": {"message": "no such thing"}})))
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {}, "ProviderError")
    assert "no such thing" in trace.last_error.message


def test_a_sandbox_that_verifiers_does_not_wait_for_is_an_error_and_no_0(
    isolation: None, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_BACKEND)
    data = export_mini(tmp_path / "out", f"{tmp_path}/slow.py:connect", select={"instance_ids": [INSTANCE]})
    trace = trace_of(data, play(SUBMIT), agent={"timeout": {"rollout": 0.5}})
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {}, "SandboxError")
    assert "did not wait for the sandbox" in trace.last_error.message


def test_a_verdict_that_verifiers_does_not_wait_for_is_an_error_and_no_0(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SUBMIT), agent={"timeout": {"finalize": 0.05}})
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {"reward": None}, "SandboxError")


@pytest.mark.parametrize("where", ["making its sandbox", "a command", "the model", "grading"])
def test_a_cancelled_episode_leaves_no_sandbox(exported: Path, sandboxes: Sandboxes, where: str) -> None:
    async def cancel() -> None:
        reached = asyncio.Event()
        loop = asyncio.get_running_loop()

        def answers(_request: dict[str, Any]) -> Answer | Fault:
            loop.call_soon_threadsafe(reached.set)
            if where == "the model":
                return Fault(how="hang")
            return call("bash", command="sleep 600") if where == "a command" else SUBMIT

        playing = asyncio.create_task(play_episode(make_env(exported), answers))
        await cancel_where(playing, where, reached, sandboxes)
        assert not sandboxes()

    asyncio.run(cancel())


def test_an_episode_that_takes_longer_than_it_may_leaves_no_sandbox(exported: Path, sandboxes: Sandboxes) -> None:
    env = make_env(exported, timeout={"episode": 4})
    episode = asyncio.run(play_episode(env, play(call("bash", command="sleep 600"))))
    assert (episode.ok, episode.is_timeout) == (False, True)
    assert not sandboxes()
