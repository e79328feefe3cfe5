from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("minisweagent", reason="needs the extra mini-swe-agent")

from swe_argo.steps.agents import mini_swe_agent
from swe_argo.steps.agents.mini_swe_agent import ENVIRONMENT
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.local.backend import LocalBackend
from tests.model_server import Answer, Call, Fault, call
from tests.model_server.answers import CONTEXT_OPENAI, EMPTY
from tests.steps.agents.machine import Box, commit, shell
from tests.steps.agents.tasks import ISSUE, agrees, in_turn, instance, observations, open_task

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"
EDIT = "sed -i 's/2/3/' a.py && git diff -- a.py > patch.txt"
FORMATS = pytest.mark.parametrize("fn_calling", [True, False], ids=["function calling", "text"])


def say(command: str, fn_calling: bool = True, **more: Any) -> Answer:
    """Return one command, in either format."""
    if fn_calling:
        return Answer("THOUGHT: next", (Call("bash", {"command": command}),), **more)
    return Answer(f"THOUGHT: next\n\n```mswea_bash_command\n{command}\n```", **more)


@FORMATS
def test_agent_edits_and_submits(any_box: Box, fn_calling: bool) -> None:
    script = in_turn(*(say(command, fn_calling) for command in ("cat a.py", EDIT, "cat patch.txt", SUBMIT)))
    with open_task(script, any_box.sandbox, "mini-swe-agent", fn_calling=fn_calling) as (task, server):
        assert mini_swe_agent.act(task) is StopReason.FINISHED
        agrees(task, server)
    assert (any_box.testbed / "a.py").read_text() == "a = 3\n"
    assert not (any_box.testbed / "patch.txt").exists()  # its prompt's own file is no part of the change
    turns = task.recorder.turns
    assert [turn.source for turn in turns] == ["system", "user", "agent", "agent", "agent", "agent"]
    assert ISSUE in turns[1].message
    first, _, third, last = observations(task)
    assert first.content == "<returncode>0</returncode>\n<output>\na = 2\n</output>"
    assert third.content is not None
    assert "\n+a = 3\n" in third.content
    assert last.content is not None
    assert last.content.startswith("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\ndiff --git a/a.py")
    calls = [turn.tool_calls[0] for turn in turns if turn.tool_calls]
    assert [(call.function_name, call.arguments["command"]) for call in calls][1] == ("bash", EDIT)
    assert first.source_call_id == calls[0].tool_call_id


@FORMATS
def test_conversation_matches_library(box: Box, fn_calling: bool) -> None:
    """Its prompts are compared with its files, its conversation with what the endpoint got."""
    import yaml
    from jinja2 import Template
    from minisweagent.config import builtin_config_dir

    name = "swebench.yaml" if fn_calling else "swebench_backticks.yaml"
    own = yaml.safe_load((builtin_config_dir / "benchmarks" / name).read_text())["agent"]
    script = in_turn(say("true", fn_calling), say(SUBMIT.replace("patch.txt", "a.py"), fn_calling))
    with open_task(script, box.sandbox, "mini-swe-agent", fn_calling=fn_calling) as (task, server):
        mini_swe_agent.act(task)
    first, second = (request.body for request in server.calls)
    system, user = first["messages"]
    assert system == {"role": "system", "content": Template(own["system_template"]).render()}
    assert user == {"role": "user", "content": Template(own["instance_template"]).render(task=ISSUE)}
    assert ("tools" in first) is fn_calling
    assert [message["role"] for message in second["messages"]][2:] == ["assistant", "tool" if fn_calling else "user"]
    assert not any("extra" in message for message in second["messages"])
    assert (task.recorder.agent.tool_definitions is not None) is fn_calling


@pytest.mark.parametrize(
    ("fn_calling", "answer", "hint"),
    [
        (True, Answer("no call"), "No tool calls found in the response"),
        (True, Answer(calls=(Call("bash", '{"command": "ls'),)), "Error parsing tool call arguments"),
        (True, call("bash", cmd="ls"), "Missing 'command' argument"),
        (True, Answer("cut", finish_reason="length"), "reached the output token limit (finish_reason=length)"),
        (False, Answer("```mswea_bash_command\na\n```\n```mswea_bash_command\nb\n```"), "found 2."),
        (False, Answer("```bash\nls\n```"), "found 0."),
    ],
)
def test_correction_uses_library_words(box: Box, fn_calling: bool, answer: Answer, hint: str) -> None:
    script = in_turn(answer, answer, say(f"touch patch.txt; {SUBMIT}", fn_calling))
    with open_task(script, box.sandbox, "mini-swe-agent", fn_calling=fn_calling) as (task, server):
        assert mini_swe_agent.act(task) is StopReason.FINISHED
        agrees(task, server)
    corrections = [turn.message for turn in task.recorder.turns[2:] if turn.source == "user"]
    assert len(corrections) == 2
    assert all(hint in correction for correction in corrections)
    assert server.calls[1].body["messages"][-1] == {"role": "user", "content": corrections[0]}
    assert [bool((turn.extra or {}).get("malformed")) for turn in task.recorder.turns if turn.metrics] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(("limit", "ends"), [(None, 5000), (1000, 500)])
def test_output_is_cut_at_the_limit(box: Box, limit: int | None, ends: int) -> None:
    script = in_turn(say("seq 1000000"), say(f"touch patch.txt; {SUBMIT}"))
    with open_task(script, box.sandbox, "mini-swe-agent", max_observation=limit) as (task, _):
        mini_swe_agent.act(task)
    result = observations(task)[0]
    assert result.content is not None
    head = result.content.partition("<output_head>\n")[2].partition("\n</output_head>")[0]
    tail = result.content.partition("<output_tail>\n")[2].partition("\n</output_tail>")[0]
    assert (len(head), len(tail)) == (ends, ends)
    assert head.startswith("1\n2\n")
    assert tail.endswith("\n1000000\n")
    assert result.extra is not None
    assert result.extra.cut


def test_import_ignores_user_config(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = home / ".config" / "mini-swe-agent"
    settings.mkdir(parents=True)
    (settings / ".env").write_text("MSWEA_MODEL_NAME=from_the_users_file\n")
    code = (
        "import os, sys; from swe_argo.steps.agents import mini_swe_agent; mini_swe_agent.check(); "
        "assert 'MSWEA_MODEL_NAME' not in os.environ; assert not {'litellm', 'textual'} & set(sys.modules)"
    )
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert [path.name for path in home.rglob("*")] == [".config", "mini-swe-agent", ".env"]


def test_missing_extra_names_the_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minisweagent", None)
    with pytest.raises(ConfigError, match=r"agent\.name: .*swe-argo\[mini-swe-agent\]', or in a checkout: make setup$"):
        mini_swe_agent.check()


def test_timeout_ends_agent_and_command(box: Box) -> None:
    for timeout_s in (3, 40):  # a busy machine may need longer to begin
        script = in_turn(say("echo early; sleep 600"))
        with open_task(script, box.sandbox, "mini-swe-agent", timeout_s=timeout_s) as (task, _):
            assert mini_swe_agent.act(task) is StopReason.TIMEOUT
        if any("early" in (result.content or "") for result in observations(task)):
            break
    (observation,) = observations(task)
    assert observation.content is not None
    assert "timed out after" in observation.content
    assert "early" in observation.content
    assert observation.extra is not None
    assert observation.extra.timed_out


def test_lost_sandbox_is_raised(any_box: Box) -> None:
    def script(request: dict[str, Any]) -> Answer:
        if len(request["messages"]) > 2:
            LocalBackend(Path(), isolated=True).destroy(any_box.sandbox)
        return say("echo here")

    with open_task(script, any_box.sandbox, "mini-swe-agent") as (task, _), pytest.raises(InfraError):
        mini_swe_agent.act(task)
    assert len(observations(task)) == 1
    assert [turn.source for turn in task.recorder.turns][-1] == "agent"


def run(box: Box, *answers: Answer | Fault, **options: Any) -> tuple[StopReason, Task]:
    """Let it work with these answers, the last of which is repeated."""
    with open_task(in_turn(*answers), box.sandbox, "mini-swe-agent", **options) as (task, server):
        reason = mini_swe_agent.act(task)
        agrees(task, server)
    return reason, task


def test_only_submitted_file_is_removed(box: Box) -> None:
    submit = say("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    for command, stays in {":": False, "echo notes > patch.txt": True, "rm patch.txt; mkdir patch.txt": True}.items():
        run(box, say(EDIT), say(command), submit)
        assert (box.testbed / "patch.txt").exists() is stays
        shell(box.testbed, "git reset -q --hard; git clean -fdq")
    commit(box.testbed, "patch.txt", {"patch.txt": "diff --git a/x b/x\n"})
    run(box, submit)
    assert (box.testbed / "patch.txt").exists()
    run(box, say(EDIT), say("rm -rf .git"), submit)
    assert not (box.testbed / "patch.txt").exists()


def test_commands_run_in_order(box: Box) -> None:
    both = Answer(calls=(Call("bash", {"command": "echo one"}, "x1"), Call("bash", {"command": "echo two"}, "x2")))
    reason, task = run(box, both, say(SUBMIT), say("echo fine"), max_steps=2)
    assert reason is StopReason.ABSOLUTE_STEPS, "nothing was in patch.txt: the command failed"
    assert [(result.source_call_id, result.content) for result in observations(task)][:2] == [
        (name, f"<returncode>0</returncode>\n<output>\n{word}\n</output>")
        for name, word in (("x1", "one"), ("x2", "two"))
    ]


@pytest.mark.parametrize(
    ("answer", "reason"), [(Answer("no call"), StopReason.MALFORMED), (EMPTY, StopReason.EMPTY_ANSWER)]
)
@FORMATS
def test_corrections_are_bounded(box: Box, fn_calling: bool, answer: Answer, reason: StopReason) -> None:
    ended, task = run(box, answer, fn_calling=fn_calling, max_malformed=2)
    assert (ended, task.recorder.usage.calls) == (reason, 2)


def test_agent_survives_odd_commands(any_box: Box) -> None:
    commands = {
        "printf '\\xff\\xfe\\x00'": "<returncode>0</returncode>",
        "kill -9 $$": "<returncode>137</returncode>",
        "sleep 300 & echo started": "started",
        "cat": "<returncode>0</returncode>",
        "exit 7": "<returncode>7</returncode>",
        "echo $PAGER": "cat",
    }
    impossible = ['{"command": 7}', '{"command": ["ls"]}', '{"command": "echo \\u0000"}']
    odd = [*(say(command) for command in commands), *(Answer(calls=(Call("bash", text),)) for text in impossible)]
    reason, task = run(any_box, *odd, say(f"touch patch.txt; {SUBMIT}"), command_timeout_s=20)
    assert reason is StopReason.FINISHED
    expected = [*commands.values(), *["An error occurred while executing the command"] * 3]
    for result, words in zip(observations(task), expected, strict=False):
        assert words in (result.content or "")
        assert result.extra is None or not result.extra.timed_out


@pytest.mark.parametrize(
    ("instruction", "hints", "expected"),
    [
        ("Do {{ task }} in {{ repo }}.", "look at a.py", "Do an {{ issue }} in a/b."),
        ("", "look at a.py", "an {{ issue }}\n\nWhat was said about it:\n\nlook at a.py"),
    ],
    ids=["instruction", "hints"],
)
def test_prompt_follows_the_task(box: Box, instruction: str, hints: str, expected: str) -> None:
    about = instance(problem_statement="an {{ issue }}", hints_text=hints)
    _, task = run(box, say(f"touch patch.txt; {SUBMIT}"), about=about, instruction=instruction)
    assert expected in task.recorder.turns[1].message


def test_config_matches_library_and_spec() -> None:
    for fn_calling in (True, False):
        config = mini_swe_agent.swebench_config(mini_swe_agent.load(), fn_calling=fn_calling, max_observation=None)
        assert config["agent"]["step_limit"] == AgentSpec(name="mini-swe-agent").hard_step_limit
        assert config["environment"]["env"] == ENVIRONMENT | ({"BASH_ENV": "/root/.bashrc"} if fn_calling else {})
        assert config["environment"]["interpreter"] == ["bash", "-c"]


LOOK = say("true", prompt_tokens=5000)
DEAR = say("true", cost_usd=0.6)


@pytest.mark.parametrize(
    ("spec", "answers", "reason", "calls"),
    [
        ({"max_steps": 3}, [LOOK], StopReason.ABSOLUTE_STEPS, 3),
        ({"max_token_limit": 4000}, [LOOK], StopReason.CONTEXT_LIMIT, 1),
        ({"max_total_tokens": 9000}, [LOOK], StopReason.TOKEN_LIMIT, 2),
        ({"max_token_limit": 10**9}, [*[LOOK] * 50, say(f"touch patch.txt; {SUBMIT}")], StopReason.FINISHED, 51),
        ({}, [DEAR], StopReason.COST_LIMIT, 5),  # the library's own three dollars
        ({"max_cost_usd": 1.0}, [Answer("no call", cost_usd=0.6), DEAR], StopReason.COST_LIMIT, 2),
        ({}, [LOOK, CONTEXT_OPENAI], StopReason.CONTEXT_OVERFLOW, 1),
    ],
)
def test_end_has_its_stop_reason(
    box: Box, spec: dict[str, Any], answers: list[Answer | Fault], reason: StopReason, calls: int
) -> None:
    ended, task = run(box, *answers, **spec)
    assert (ended, task.recorder.usage.calls) == (reason, calls)
