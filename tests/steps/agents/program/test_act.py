from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swe_argo.steps.agents import program
from swe_argo.steps.contracts.recipe import Recipe
from swe_argo.steps.contracts.run_spec import WireProtocol
from swe_argo.steps.contracts.trajectory import StopReason, Turn
from swe_argo.steps.errors import ConfigError
from tests import small_agent
from tests.model_server import Answer, Call, Fault, Script, by_text, play
from tests.model_server.answers import error
from tests.steps.agents.machine import Box
from tests.steps.agents.program.running import PROGRAM, running
from tests.steps.agents.tasks import ISSUE
from tests.steps.gateway.toolchain import needs_go

pytestmark = needs_go
MENDS = play(
    Answer("I look.", calls=(Call("bash", {"command": "cat a.py"}),)),
    Answer("I mend.", calls=(Call("bash", {"command": "echo a = 3 >a.py"}), Call("bash", {"command": "cat a.py"}))),
    Answer("Mended."),
)


def bash(command: str, **fields: Any) -> Recipe:
    return Recipe.model_validate({"name": "bash", "command": ["bash", "-c", command], **fields})


def agents(turns: list[Turn]) -> list[Turn]:
    return [turn for turn in turns if turn.source == "agent"]


@pytest.mark.parametrize(
    ("speaks", "stream"), [(tuple(WireProtocol), False), ((WireProtocol.CHAT,), True)], ids=["passed", "translated"]
)
@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_program_records_all_its_calls(
    box: Box, protocol: WireProtocol, speaks: tuple[WireProtocol, ...], stream: bool
) -> None:
    recipe = small_agent.recipe(PROGRAM, protocol, *(["--stream"] if stream else []))
    with running(MENDS, box.sandbox, recipe, speaks=speaks) as run:
        assert program.act(run.task) is StopReason.FINISHED
        run.agrees()
    assert (box.testbed / "a.py").read_text() == "a = 3\n"
    recorder = run.task.recorder
    assert [turn.source for turn in recorder.turns] == ["system", "user", "agent", "agent", "agent"]
    assert ISSUE in recorder.turns[1].message
    looked, mended, final = agents(recorder.turns)
    assert looked.observation
    assert [result.content for result in looked.observation.results] == ["a = 2\n"]
    assert mended.observation
    assert [result.content for result in mended.observation.results] == ["(nothing)", "a = 3\n"]
    assert [call.arguments for call in mended.tool_calls or []] == [
        {"command": "echo a = 3 >a.py"}, {"command": "cat a.py"},
    ]  # fmt: skip
    assert (final.message, final.tool_calls) == ("Mended.", None)
    assert recorder.printed == "I look.\nI mend.\nMended.\n"
    assert not recorder.side_recorders
    assert [tool["function"]["name"] for tool in recorder.agent.tool_definitions or []] == ["bash"]


def test_helper_calls_are_recorded_apart(box: Box) -> None:
    recipe = small_agent.recipe(PROGRAM, "anthropic", "--and", "title")
    with running(MENDS, box.sandbox, recipe, helper_model="openai/small") as run:
        assert program.act(run.task) is StopReason.FINISHED
        run.agrees()
    (title,) = run.task.recorder.side_recorders
    assert title.agent.model_name == "small"
    assert [turn.source for turn in title.turns] == ["system", "user", "agent"]
    assert [len(agents(run.task.recorder.turns)), run.task.recorder.agent.model_name] == [3, "tester"]
    assert [call.body["model"] for call in run.server.calls] == ["small", "tester", "tester", "tester"]


def test_sub_agents_are_recorded_apart(box: Box) -> None:
    looks: dict[str, Script] = {
        f"part {number}": play(Answer(calls=(Call("bash", {"command": f"echo {number}"}),)), Answer("Seen."))
        for number in (1, 2, 3)
    }
    recipe = small_agent.recipe(PROGRAM, "responses", "--and", "sub-agents")
    with running(by_text(looks, otherwise=MENDS), box.sandbox, recipe) as run:
        assert program.act(run.task) is StopReason.FINISHED
        run.agrees()
    assert [turn.message for turn in agents(run.task.recorder.turns)] == ["I look.", "I mend.", "Mended."]
    contents = {
        turns[1].message: [result.content for result in turns[2].observation.results]
        for turns in (side.turns for side in run.task.recorder.side_recorders)
        if turns[2].observation
    }
    assert contents == {f"Look into part {number}.": [f"{number}\n"] for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("more", "reason", "note"),
    [
        ("crash", StopReason.AGENT_CRASHED, "exit code 1"),
        ("die", StopReason.AGENT_KILLED, "exit code 137"),
        ("nothing", StopReason.NO_CALLS, ""),
        ("other-paths", StopReason.ERROR_LOOP, ""),
    ],
)
def test_program_end_has_stop_reason(box: Box, more: str, reason: StopReason, note: str) -> None:
    with running(MENDS, box.sandbox, small_agent.recipe(PROGRAM, "chat", "--and", more)) as run:
        assert program.act(run.task) is reason
    assert run.task.recorder.note == note


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(("turn", "reason"), [(2, StopReason.REQUEST_REFUSED), (3, None)])
def test_refusal_outranks_exit_code(box: Box, code: int, turn: int, reason: StopReason | None) -> None:
    def script(request: dict[str, Any]) -> Answer | Fault:
        answered = sum(message["role"] == "assistant" for message in request["messages"])
        return error(400, "no such thing") if answered == turn - 1 else MENDS(request)

    recipe = bash(f"python3 {PROGRAM} {' '.join(small_agent.words())}; exit {code}")
    with running(script, box.sandbox, recipe) as run:
        assert program.act(run.task) is (reason or (StopReason.FINISHED, StopReason.REQUEST_REFUSED)[code])
        assert run.server.counts.requests == turn + 2, "the small request, and the refused one once more"
    assert ("no such thing" in run.task.recorder.note) is (reason is not None or code == 1)


def test_program_is_ended_at_its_limits(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(program.LIMITS, output_bytes=10_000_000, home_bytes=20_000_000)
    for command, reason in {
        "yes": StopReason.OUTPUT_FLOOD,
        "tr '\\0' x </dev/zero >~/large": StopReason.HOME_FLOOD,
        "mkfifo ~/terminal; read -r line <~/terminal": StopReason.WAITING,
        "sleep 600 & sleep 600 & echo done": StopReason.NO_CALLS,
    }.items():
        idle_s = 3.0 if reason is StopReason.WAITING else 600.0
        monkeypatch.setattr(program, "LIMITS", replace(small, idle_s=idle_s))
        with running(MENDS, box.sandbox, bash(f"echo a = 3 >a.py; {command}")) as run:
            assert program.act(run.task) is reason
        assert (box.testbed / "a.py").read_text() == "a = 3\n"
        assert bool(run.task.recorder.note) is (reason is not StopReason.NO_CALLS)


def test_repeated_refusals_end_program(box: Box) -> None:
    recipe = small_agent.recipe(PROGRAM, "chat", "--and", "loop")
    with running(play(error(400, "no such thing")), box.sandbox, recipe) as run, pytest.raises(ConfigError):
        program.act(run.task)


@pytest.mark.parametrize(
    ("limit", "reason", "calls"),
    [({"max_steps": 2}, StopReason.ABSOLUTE_STEPS, 2), ({"max_total_tokens": 10}, StopReason.TOKEN_LIMIT, 1)],
    ids=["steps", "tokens"],
)
def test_run_limits_refuse_further_calls(box: Box, limit: dict[str, Any], reason: StopReason, calls: int) -> None:
    with running(MENDS, box.sandbox, **limit) as run:
        assert program.act(run.task) is reason
        run.agrees()
        assert run.server.counts.calls == calls
    assert "the run's limit is reached" not in run.task.recorder.note


def test_timeout_ends_program(box: Box) -> None:
    recipe = small_agent.recipe(PROGRAM, "chat", "--and", "sleep")
    for timeout_s in (5, 30, 120):  # a busy machine may need longer to mend
        with running(MENDS, box.sandbox, recipe, timeout_s=timeout_s) as run:
            assert program.act(run.task) is StopReason.TIMEOUT
            if run.task.recorder.usage.calls == 3:
                break
    run.agrees()
    assert (box.testbed / "a.py").read_text() == "a = 3\n"


def test_unrunnable_is_config_error(box: Box) -> None:
    recipe = Recipe.model_validate({"name": "lost", "command": ["/nowhere/agent"], "libc": "glibc"})
    with (
        running(MENDS, box.sandbox, recipe) as run,
        pytest.raises(ConfigError, match=r"lost cannot run in .*needs? glibc"),
    ):
        program.act(run.task)


def test_home_is_filled_and_removed(box: Box) -> None:
    shows = "cd; cat .my/config; echo $HOME $WORD; [ -t 0 ] || echo no terminal"
    fields = {"env": {"WORD": "for {model}"}, "files": {".my/config": "model = {model}\n"}, "exits": {0: "max_steps"}}
    recipe = bash(f"{shows}; echo x >big; echo $HOME >/testbed/home", **fields)
    with running(MENDS, box.sandbox, recipe) as run:
        assert program.act(run.task) is StopReason.MAX_STEPS
    first, second, third = run.task.recorder.printed.splitlines()
    assert first == "model = tester"
    assert second.endswith("/home for tester")
    assert third == "no terminal"
    home = (box.testbed / "home").read_text().strip()
    assert box.sandbox.exec(f"ls {home}", timeout_s=20).exit_code != 0
