from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swe_argo.steps.agents import program
from swe_argo.steps.contracts.recipe import Recipe
from swe_argo.steps.contracts.trajectory import StopReason, Turn
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.errors import ConfigError
from tests import small_agent
from tests.model_server import Answer, Call, Fault, Script, by_text, play
from tests.model_server.answers import error
from tests.steps.agents.gate.toolchain import needs_go
from tests.steps.agents.machine import Box
from tests.steps.agents.program.running import PROGRAM, running
from tests.steps.agents.tasks import ISSUE

pytestmark = needs_go
MENDS = play(
    Answer("I look.", calls=(Call("bash", {"command": "cat a.py"}),)),
    Answer("I mend.", calls=(Call("bash", {"command": "echo a = 3 >a.py"}), Call("bash", {"command": "cat a.py"}))),
    Answer("Mended."),
)


def bash(command: str, protocol: str = "chat") -> Recipe:
    return Recipe.model_validate({"name": "bash", "protocol": protocol, "command": ["bash", "-c", command]})


def agents(turns: list[Turn]) -> list[Turn]:
    return [turn for turn in turns if turn.source == "agent"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("speaks", [tuple(WireProtocol), (WireProtocol.CHAT,)], ids=["passed", "translated"])
@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_a_program_mends_and_each_of_its_calls_is_in_the_journal(
    box: Box, protocol: WireProtocol, speaks: tuple[WireProtocol, ...], stream: bool
) -> None:
    recipe = small_agent.recipe(PROGRAM, protocol, *(["--stream"] if stream else []))
    with running(MENDS, box.sandbox, recipe, speaks=speaks) as run:
        assert program.act(run.task) is StopReason.FINISHED
        run.agrees()
    assert (box.testbed / "a.py").read_text() == "a = 3\n"
    journal = run.task.journal
    assert [turn.source for turn in journal.turns] == ["system", "user", "agent", "agent", "agent"]
    assert ISSUE in journal.turns[1].message
    looked, mended, said = agents(journal.turns)
    assert looked.observation
    assert [each.content for each in looked.observation.results] == ["a = 2\n"]
    assert mended.observation
    assert [each.content for each in mended.observation.results] == ["(nothing)", "a = 3\n"]
    assert [call.arguments for call in mended.tool_calls or []] == [
        {"command": "echo a = 3 >a.py"}, {"command": "cat a.py"},
    ]  # fmt: skip
    assert (said.message, said.tool_calls) == ("Mended.", None)
    assert journal.printed == "I look.\nI mend.\nMended.\n"
    assert not journal.beside
    assert [tool["function"]["name"] for tool in journal.agent.tool_definitions or []] == ["bash"]


def test_a_helpers_call_stands_beside_the_work(box: Box) -> None:
    recipe = small_agent.recipe(PROGRAM, "anthropic", "--and", "title")
    with running(MENDS, box.sandbox, recipe, helper_model="openai/small") as run:
        assert program.act(run.task) is StopReason.FINISHED
        run.agrees()
    (title,) = run.task.journal.beside
    assert title.agent.model_name == "small"
    assert [turn.source for turn in title.turns] == ["system", "user", "agent"]
    assert [len(agents(run.task.journal.turns)), run.task.journal.agent.model_name] == [3, "tester"]
    assert [call.body["model"] for call in run.server.calls] == ["small", "tester", "tester", "tester"]


def test_each_sub_agent_has_a_conversation_of_its_own(box: Box) -> None:
    looks: dict[str, Script] = {
        f"part {number}": play(Answer(calls=(Call("bash", {"command": f"echo {number}"}),)), Answer("Seen."))
        for number in (1, 2, 3)
    }
    recipe = small_agent.recipe(PROGRAM, "responses", "--and", "sub-agents")
    with running(by_text(looks, otherwise=MENDS), box.sandbox, recipe) as run:
        assert program.act(run.task) is StopReason.FINISHED
        run.agrees()
    assert [turn.message for turn in agents(run.task.journal.turns)] == ["I look.", "I mend.", "Mended."]
    told = {
        turns[1].message: [result.content for result in turns[2].observation.results]
        for turns in (side.turns for side in run.task.journal.beside)
        if turns[2].observation
    }
    assert told == {f"Look into part {number}.": [f"{number}\n"] for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("more", "reason", "note"),
    [
        ("crash", StopReason.AGENT_CRASHED, "exit code 1"),
        ("die", StopReason.AGENT_KILLED, "exit code 137"),
        ("nothing", StopReason.NO_CALLS, ""),
        ("other-paths", StopReason.ERROR_LOOP, ""),
    ],
)
def test_how_it_ends_is_told(box: Box, more: str, reason: StopReason, note: str) -> None:
    with running(MENDS, box.sandbox, small_agent.recipe(PROGRAM, "chat", "--and", more)) as run:
        assert program.act(run.task) is reason
    assert run.task.journal.note == note


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize(("turn", "reason"), [(2, StopReason.REQUEST_REFUSED), (3, None)])
def test_exit_code_does_not_hide_that_endpoint_ended_it_early(
    box: Box, code: int, turn: int, reason: StopReason | None
) -> None:
    def script(request: dict[str, Any]) -> Answer | Fault:
        answered = sum(message["role"] == "assistant" for message in request["messages"])
        return error(400, "no such thing") if answered == turn - 1 else MENDS(request)

    words = " ".join(small_agent.words())
    with running(script, box.sandbox, bash(f"python3 {PROGRAM} {words}; exit {code}")) as run:
        assert program.act(run.task) is (reason or (StopReason.FINISHED, StopReason.REQUEST_REFUSED)[code])
        assert run.server.counts.requests == turn + 2, "the small request, and the refused one once more"
    assert ("no such thing" in run.task.journal.note) is (reason is not None or code == 1)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("yes", StopReason.OUTPUT_FLOOD),
        ("tr '\\0' x </dev/zero >~/large", StopReason.HOME_FLOOD),
        ("mkfifo ~/terminal; read -r line <~/terminal", StopReason.WAITING),
        ("sleep 600 & sleep 600 & echo done", StopReason.NO_CALLS),
    ],
)
def test_one_that_does_not_end_by_itself_is_ended_for_what_it_does(
    box: Box, command: str, reason: StopReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_s = 5.0 if reason is StopReason.WAITING else 600.0
    small = replace(program.LIMITS, output_bytes=10_000_000, home_bytes=20_000_000, idle_s=idle_s)
    monkeypatch.setattr(program, "LIMITS", small)
    with running(MENDS, box.sandbox, bash(f"echo a = 3 >a.py; {command}")) as run:
        assert program.act(run.task) is reason
    assert (box.testbed / "a.py").read_text() == "a = 3\n"
    assert bool(run.task.journal.note) is (reason is not StopReason.NO_CALLS)


def test_one_that_asks_for_ever_what_is_refused_is_ended(box: Box) -> None:
    recipe = small_agent.recipe(PROGRAM, "chat", "--and", "loop")
    with running(play(error(400, "no such thing")), box.sandbox, recipe) as run, pytest.raises(ConfigError):
        program.act(run.task)


@pytest.mark.parametrize(
    ("limit", "reason", "calls"),
    [
        ({"max_steps": 2}, StopReason.ABSOLUTE_STEPS, 2),
        ({"max_total_tokens": 10}, StopReason.TOKEN_LIMIT, 1),
    ],
    ids=["steps", "tokens"],
)
def test_a_limit_refuses_further_calls(box: Box, limit: dict[str, Any], reason: StopReason, calls: int) -> None:
    with running(MENDS, box.sandbox, **limit) as run:
        assert program.act(run.task) is reason
        run.agrees()
        assert run.server.counts.calls == calls
    assert "the run's limit is reached" not in run.task.journal.note


def test_its_time_ends_it(box: Box) -> None:
    recipe = small_agent.recipe(PROGRAM, "chat", "--and", "sleep")
    for timeout_s in (8, 30, 120):  # a busy machine may need longer to mend
        with running(MENDS, box.sandbox, recipe, timeout_s=timeout_s) as run:
            assert program.act(run.task) is StopReason.TIMEOUT
            if run.task.journal.usage.calls == 3:
                break
    run.agrees()
    assert (box.testbed / "a.py").read_text() == "a = 3\n"


def test_a_program_that_cannot_run_in_the_image_is_a_matter_of_configuration(box: Box) -> None:
    recipe = Recipe.model_validate({"name": "lost", "command": ["/nowhere/agent"], "libc": "glibc"})
    with (
        running(MENDS, box.sandbox, recipe) as run,
        pytest.raises(ConfigError, match=r"lost cannot run in .*needs? glibc"),
    ):
        program.act(run.task)


def test_its_home_has_the_recipes_files_and_is_gone_afterwards(box: Box) -> None:
    command = (
        "cd; cat .my/config; echo $HOME $WORD; [ -t 0 ] || echo no terminal; echo x >big; echo $HOME >/testbed/home"
    )
    recipe = Recipe.model_validate(
        {
            "name": "home",
            "command": ["bash", "-c", command],
            "env": {"WORD": "for {model}"},
            "files": {".my/config": "model = {model}\n"},
            "exits": {0: "max_steps"},
        }
    )
    with running(MENDS, box.sandbox, recipe) as run:
        assert program.act(run.task) is StopReason.MAX_STEPS
    first, second, third = run.task.journal.printed.splitlines()
    assert first == "model = tester"
    assert second.endswith("/home for tester")
    assert third == "no terminal"
    home = (box.testbed / "home").read_text().strip()
    assert box.sandbox.exec(f"ls {home}", timeout_s=20).exit_code != 0
