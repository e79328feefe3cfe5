"""Episodes of the installed verifiers on backend local: rewards, limits and failures."""

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
from tests.rollouts.fixtures import cancel_where
from tests.steps.contracts.test_verdict import graded

vf = pytest.importorskip("verifiers.v1", reason="needs verifiers: make test-verifiers")

from swe_argo.steps.host.folders import end_processes, private_folder  # noqa: E402
from swe_argo.workflows.rollouts.rollout import LiveRollout  # noqa: E402
from tests.verifiers.episodes import (  # noqa: E402
    FINAL,
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

from swe_argo.steps.sandbox.local.backend import LocalBackend


class SlowBackend(LocalBackend):
    def create(self, request):
        time.sleep(2)
        return super().create(request)
"""
INVALID = GOLD.replace("separator", "nothing_that_is_there")


def trace_of(data: Path, script: Script, **fields: Any) -> Any:
    """Return the trace of one episode; ``fields``: of the environment."""
    episode = asyncio.run(play_episode(make_env(data, **fields), script))
    assert not episode.errors
    [trace] = episode.traces
    return trace


def record_messages(messages: list[str], *items: Any) -> Script:
    """Play a conversation; record the last message of each request."""
    script = play(*items)

    def look(request: dict[str, Any]) -> Answer | Fault:
        messages.append(str(request["messages"][-1]["content"]))
        return script(request)

    return look


SLEEP = call("bash", command="sleep 600")
BREAK = call("bash", command="kill -9 -1; kill -9 1; rm -rf /testbed")
OVERFLOW = error(400, "This model's maximum context length is 4096 tokens.", "context_length_exceeded")
ONE_LINE = call("bash", command="echo >> README.md")
# fmt: off
ENDS: dict[str, tuple[tuple[Any, ...], dict[str, Any], float, dict[str, Any]]] = {
    "gold patch": ((SUBMIT,), {}, 1.0, {"outcome": "resolved", "patch": GOLD}),
    "changed files, submitted": ((SOLVE, call("submit_solution")), {}, 1.0, {}),
    "changed files": ((SOLVE, FINAL), {}, 1.0, {}),
    "no change": ((FINAL,), {}, 0.0, {"outcome": "empty_patch"}),
    "useless change": ((ONE_LINE, FINAL), {}, 0.0, {"outcome": "unresolved"}),
    "invalid patch": ((call("submit_solution", patch=INVALID), FINAL),
                      {"taskset": {"task": {"invalid_patch_penalty": 0.5}}}, -0.5,
                      {"outcome": "patch_does_not_apply"}),
    "max_turns": ((SOLVE, call("bash", command="ls")), {"agent": {"max_turns": 3}}, 1.0, {}),
    "agent_timeout": ((SOLVE, SLEEP), {"agent": {"timeout": {"rollout": 6}}}, 1.0, {}),
    "context overflow": ((SOLVE, OVERFLOW), {}, 1.0, {}),
    "broken sandbox": ((SOLVE, BREAK, FINAL), {}, 0.0, {}),
}
"""Name -> the model's answers, fields of the environment, reward, and parts of the trace's info."""
# fmt: on


@pytest.mark.parametrize("name", ENDS)
def test_episode_is_graded(exported: Path, sandboxes: Sandboxes, name: str) -> None:
    answers, fields, reward, info = ENDS[name]
    trace = trace_of(exported, play(*answers), **fields)
    assert (trace.ok, trace.reward) == (True, reward)
    assert {field: trace.info[field] for field in info} == info
    if name in ("max_turns", "agent_timeout"):
        assert trace.stop_condition == name
    if name == "gold patch":
        assert trace.metrics == {"acc": 1.0, "suspect": 0.0}


def test_doubtful_reward_follows_options(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_episode_has_one_sandbox(exported: Path, sandboxes: Sandboxes) -> None:
    snapshots: list[list[str]] = []
    messages: list[str] = []
    commands = [call("bash", command=line) for line in ("cd slugkit && export A=1", 'echo "$PWD $A"')]
    script = record_messages(messages, *commands, FINAL)

    def counting(request: dict[str, Any]) -> Answer | Fault:
        snapshots.append(sandboxes())
        return script(request)

    trace = trace_of(exported, counting)
    assert len(snapshots) == 3
    assert all(snapshot == snapshots[0] and len(snapshot) == 1 for snapshot in snapshots)
    assert messages[2] == "Exit code: 0\n/testbed/slugkit 1"
    assert (trace.num_turns, trace.num_branches) == (3, 1)


def test_invalid_calls_are_answered(exported: Path) -> None:
    messages: list[str] = []
    wrong = [Call("python"), Call("bash", "{'command'"), Call("bash", "[]"), Call("bash")]
    trace = trace_of(exported, record_messages(messages, *(Answer(calls=(item,)) for item in wrong), SUBMIT))
    assert trace.reward == 1.0
    assert messages[1] == "There is no tool 'python'; there are bash and submit_solution."
    assert messages[2].startswith("The arguments of bash are no JSON: ")
    assert messages[3] == "The arguments of bash are to be a JSON object."
    assert messages[4].startswith("bash needs a command")


def test_lost_sandbox_is_retried(isolation: None, tmp_path: Path, sandboxes: Sandboxes) -> None:
    data = export_failing(tmp_path, "solve 1", "grade 1", retries=1)
    assert trace_of(data, play(SUBMIT)).reward == 1.0
    assert not (tmp_path / "orders").read_text()


@pytest.mark.parametrize("role", ["solve", "grade"])
def test_permanent_loss_is_an_error(isolation: None, tmp_path: Path, sandboxes: Sandboxes, role: str) -> None:
    trace = trace_of(export_failing(tmp_path, *[f"{role} 1"] * 2, retries=1), play(SUBMIT))
    assert (trace.ok, trace.has_error, trace.rewards) == (False, True, {})
    [lost] = trace.errors
    assert lost.type == "SandboxError"
    assert "the node went away" in lost.message


def test_loss_during_episode_is_an_error(exported: Path, sandboxes: Sandboxes) -> None:
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


def test_endpoint_failure_is_an_error(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SOLVE, Fault(400, {"error": {"message": "no such thing"}})))
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {}, "ProviderError")
    assert "no such thing" in trace.last_error.message


def test_sandbox_timeout_is_an_error(isolation: None, tmp_path: Path, sandboxes: Sandboxes) -> None:
    (tmp_path / "slow.py").write_text(SLOW_BACKEND)
    data = export_mini(tmp_path / "out", f"{tmp_path}/slow.py:SlowBackend", select={"instance_ids": [INSTANCE]})
    trace = trace_of(data, play(SUBMIT), agent={"timeout": {"rollout": 0.5}})
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {}, "SandboxError")
    assert "did not wait for the sandbox" in trace.last_error.message


def test_verdict_timeout_is_an_error(exported: Path, sandboxes: Sandboxes) -> None:
    trace = trace_of(exported, play(SUBMIT), agent={"timeout": {"finalize": 0.05}})
    assert (trace.ok, trace.rewards, trace.last_error.type) == (False, {"reward": None}, "SandboxError")


@pytest.mark.parametrize("where", ["making its sandbox", "a command", "the model", "grading"])
def test_cancelled_episode_cleans_up(exported: Path, sandboxes: Sandboxes, where: str) -> None:
    async def cancel() -> None:
        reached = asyncio.Event()
        loop = asyncio.get_running_loop()

        def answers(_request: dict[str, Any]) -> Answer | Fault:
            loop.call_soon_threadsafe(reached.set)
            if where == "the model":
                return Fault(how="hang")
            return SLEEP if where == "a command" else SUBMIT

        playing = asyncio.create_task(play_episode(make_env(exported), answers))
        await cancel_where(playing, where, reached, sandboxes)
        assert not sandboxes()

    asyncio.run(cancel())


def test_episode_timeout_cleans_up(exported: Path, sandboxes: Sandboxes) -> None:
    env = make_env(exported, timeout={"episode": 4})
    episode = asyncio.run(play_episode(env, play(SLEEP)))
    assert (episode.ok, episode.is_timeout) == (False, True)
    assert not sandboxes()
