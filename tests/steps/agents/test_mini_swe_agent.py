from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("minisweagent", reason="needs the extra mini-swe-agent")

from swe_argo.steps.agents import mini_swe_agent
from swe_argo.steps.agents.mini_swe_agent import library
from swe_argo.steps.agents.mini_swe_agent.commands import ENVIRONMENT
from swe_argo.steps.contracts.trajectory import StopReason
from tests.model_server import Answer, Call, call
from tests.model_server.answers import EMPTY
from tests.steps.agents.machine import Box, commit
from tests.steps.agents.mini_answers import EDIT, FORMATS, SUBMIT, in_turn, say
from tests.steps.agents.tasks import ISSUE, agrees, instance, observations, open_task


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


@pytest.mark.parametrize(
    ("command", "stays"),
    [(":", False), ("echo notes > patch.txt", True), ("rm patch.txt; mkdir patch.txt", True), ("rm -rf .git", False)],
)
def test_only_submitted_file_is_removed(box: Box, command: str, stays: bool) -> None:
    script = in_turn(*(say(text, True) for text in (EDIT, command, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")))
    with open_task(script, box.sandbox, "mini-swe-agent") as (task, _):
        assert mini_swe_agent.act(task) is StopReason.FINISHED
    assert (box.testbed / "patch.txt").exists() is stays


def test_committed_patch_file_stays(box: Box) -> None:
    commit(box.testbed, "patch.txt", {"patch.txt": "diff --git a/x b/x\n"})
    with open_task(in_turn(say("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", True)), box.sandbox, "mini-swe-agent") as (
        task,
        _,
    ):
        mini_swe_agent.act(task)
    assert (box.testbed / "patch.txt").exists()


def test_config_sets_the_environment() -> None:
    config = library.swebench_config(library.load(), fn_calling=True, max_observation=None)["environment"]
    assert config["env"] == {**ENVIRONMENT, "BASH_ENV": "/root/.bashrc"}
    assert config["interpreter"] == ["bash", "-c"]


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


def test_commands_run_in_order(box: Box) -> None:
    both = Answer(calls=(Call("bash", {"command": "echo one"}, "x1"), Call("bash", {"command": "echo two"}, "x2")))
    with open_task(
        in_turn(both, say(SUBMIT, True), say("echo fine", True)), box.sandbox, "mini-swe-agent", max_steps=2
    ) as (
        task,
        server,
    ):
        assert mini_swe_agent.act(task) is StopReason.ABSOLUTE_STEPS  # nothing was in patch.txt: the command failed
        agrees(task, server)
    contents = [(result.source_call_id, result.content) for result in observations(task)][:2]
    assert contents == [
        (name, f"<returncode>0</returncode>\n<output>\n{word}\n</output>")
        for name, word in (("x1", "one"), ("x2", "two"))
    ]


@pytest.mark.parametrize(
    ("fn_calling", "answer", "hint"),
    [
        (True, Answer("no call"), "No tool calls found in the response"),
        (True, call("python", code="1"), "Unknown tool 'python'"),
        (True, Answer(calls=(Call("bash", '{"command": "ls'),)), "Error parsing tool call arguments"),
        (True, call("bash", cmd="ls"), "Missing 'command' argument"),
        (True, Answer("cut", finish_reason="length"), "reached the output token limit (finish_reason=length)"),
        (False, Answer("no block"), "Expected exactly 1 action, found 0."),
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


@pytest.mark.parametrize(
    ("answer", "reason"), [(Answer("no call"), StopReason.MALFORMED), (EMPTY, StopReason.EMPTY_ANSWER)]
)
@FORMATS
def test_corrections_are_bounded(box: Box, fn_calling: bool, answer: Answer, reason: StopReason) -> None:
    with open_task(in_turn(answer), box.sandbox, "mini-swe-agent", fn_calling=fn_calling, max_malformed=2) as (
        task,
        server,
    ):
        assert mini_swe_agent.act(task) is reason
        agrees(task, server)
    assert server.counts.calls == 2


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("printf '\\xff\\xfe\\x00'", "<returncode>0</returncode>"),
        ("kill -9 $$", "<returncode>137</returncode>"),
        ("sleep 300 & echo started", "started"),
        ("cat", "<returncode>0</returncode>"),
        ("exit 7", "<returncode>7</returncode>"),
        ("echo $PAGER", "cat"),
    ],
)
def test_agent_survives_odd_commands(any_box: Box, command: str, expected: str) -> None:
    script = in_turn(say(command, True), say("echo after", True), say(f"touch patch.txt; {SUBMIT}", True))
    with open_task(script, any_box.sandbox, "mini-swe-agent", command_timeout_s=20) as (task, _):
        assert mini_swe_agent.act(task) is StopReason.FINISHED
    results = observations(task)
    assert expected in (results[0].content or "")
    assert "after" in (results[1].content or "")
    assert results[0].extra is not None
    assert not results[0].extra.timed_out


@pytest.mark.parametrize("arguments", ['{"command": 7}', '{"command": ["ls"]}', '{"command": "echo \\u0000"}'])
def test_non_text_command_is_observation(box: Box, arguments: str) -> None:
    odd = Answer(calls=(Call("bash", arguments),))
    with open_task(in_turn(odd, say(f"touch patch.txt; {SUBMIT}", True)), box.sandbox, "mini-swe-agent") as (task, _):
        assert mini_swe_agent.act(task) is StopReason.FINISHED
    assert "An error occurred while executing the command" in (observations(task)[0].content or "")


@pytest.mark.parametrize(("limit", "ends"), [(None, 5000), (1000, 500)])
def test_output_is_cut_at_the_limit(box: Box, limit: int | None, ends: int) -> None:
    script = in_turn(say("seq 1000000", True), say(f"touch patch.txt; {SUBMIT}", True))
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


def test_instruction_replaces_own_prompt(box: Box) -> None:
    about = instance(problem_statement="an {{ issue }}", hints_text="look at a.py")
    with open_task(
        in_turn(say(f"touch patch.txt; {SUBMIT}", True)),
        box.sandbox,
        "mini-swe-agent",
        instruction="Do {{ task }} in {{ repo }}.",
        about=about,
    ) as (task, _):
        mini_swe_agent.act(task)
    assert task.recorder.turns[1].message == "Do an {{ issue }} in a/b."


def test_hints_follow_the_issue(box: Box) -> None:
    about = instance(hints_text="look at a.py")
    with open_task(in_turn(say(f"touch patch.txt; {SUBMIT}", True)), box.sandbox, "mini-swe-agent", about=about) as (
        task,
        _,
    ):
        mini_swe_agent.act(task)
    assert f"{ISSUE}\n\nWhat was said about it:\n\nlook at a.py" in task.recorder.turns[1].message


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


def test_missing_extra_names_the_install() -> None:
    code = (
        "import sys; sys.modules['minisweagent'] = None\n"
        "from swe_argo.steps.agents import mini_swe_agent; from swe_argo.steps.errors import ConfigError\n"
        "try: mini_swe_agent.check()\nexcept ConfigError as error: print(error.reason)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    (line,) = result.stdout.splitlines()
    assert line.startswith("agent.name: ")
    assert line.endswith("pip install 'swe-argo[mini-swe-agent]', or in a checkout: make setup")
