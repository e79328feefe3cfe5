from __future__ import annotations

import json
import time
from typing import Any

import pytest

from swe_argo.steps.agents import oneshot
from swe_argo.steps.agents.formats import read_row
from swe_argo.steps.agents.history import hide_history
from swe_argo.steps.agents.prompts import file_layouts
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.replay import agent
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import FileContext
from swe_argo.steps.contracts.recording import Recording, Replayed
from swe_argo.steps.contracts.trajectory import AgentInfo, StopReason
from swe_argo.steps.errors import InfraError
from tests.model_server import Answer, Fault, play
from tests.model_server.answers import CONTEXT_VLLM, EMPTY, SERVER_ERROR
from tests.steps.agents.machine import Box, commit, git
from tests.steps.agents.tasks import ISSUE, agrees, instance, observations, open_task

PATCH = "\ndiff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 2\n+a = 3\n"
ANSWER = f"I would do this.\n<patch>{PATCH}</patch>\n"


def file(path: str, text: str | None = None, **more: Any) -> FileContext:
    return FileContext(path=path, text=text, **more)


def prompt_of(turns: list[Any]) -> str:
    return f"{turns[0].message}\n{turns[1].message}"


@pytest.mark.parametrize("style", ["style-2", "style-2-edits-only", "style-3"])
def test_oneshot_keeps_patch_bytes(any_box: Box, style: str) -> None:
    about = instance(context=[file("a.py"), file("b/c.py", "of the row")])
    with open_task(play(Answer(ANSWER)), any_box.sandbox, "oneshot", about=about, prompt_style=style) as (task, server):
        assert oneshot.act(task) is StopReason.FINISHED
        agrees(task, server)
    assert task.patch == PATCH.encode()
    assert (any_box.testbed / "a.py").read_text() == "a = 3\n"
    assert server.counts.requests == 1
    files = [file("a.py", "a = 2\n"), file("b/c.py", "of the row")]
    assert prompt_of(task.recorder.turns) == file_layouts.render_prompt(style, ISSUE, [], files)
    assert [(m["role"], m["content"]) for m in server.calls[0].body["messages"]] == [
        (turn.source, turn.message) for turn in task.recorder.turns[:2]
    ]
    assert "tools" not in server.calls[0].body
    (result,) = observations(task)
    assert (result.content, result.extra and result.extra.exit_code) == ("taken by git apply --verbose", 0)


@pytest.mark.parametrize(
    ("answer", "patch", "reason"),
    [
        (Answer(ANSWER.replace("a = 2", "a = 7")), PATCH.replace("a = 2", "a = 7"), StopReason.FINISHED),
        (Answer("I do not know."), "I do not know.", StopReason.MALFORMED),
        (Answer("```python\nx = 1\n```"), "x = 1\n", StopReason.MALFORMED),
        (Answer("<patch></patch>"), "", StopReason.MALFORMED),
        (EMPTY, "", StopReason.EMPTY_ANSWER),
        (CONTEXT_VLLM, "", StopReason.CONTEXT_OVERFLOW),
        (Answer(refusal="No."), "", StopReason.REFUSAL),
    ],
)
def test_unusable_answer_keeps_its_patch(box: Box, answer: Answer | Fault, patch: str, reason: StopReason) -> None:
    with open_task(play(answer), box.sandbox, "oneshot") as (task, server):
        assert oneshot.act(task) is reason
        agrees(task, server)
    assert task.patch == patch.encode()
    assert (box.testbed / "a.py").read_text() == "a = 2\n"


@pytest.mark.parametrize("answer", [ANSWER, ANSWER.replace("a = 2", "a = 7")])
def test_answer_can_be_replayed(box: Box, answer: str) -> None:
    with open_task(play(Answer(answer)), box.sandbox, "oneshot") as (task, _):
        reason = oneshot.act(task)
    after = (box.testbed / "a.py").read_text()
    git(box.testbed, "checkout", "-q", ".")
    recorded = read_row(json.loads(task.recorder.trajectory(reason).to_bytes()))
    assert recorded is not None
    recording = Recording(
        source="t", scaffold=recorded.scaffold, actions=recorded.actions, patch=answer.partition("<patch>")[2][:-9]
    )
    again = Recorder(AgentInfo(name="replay", version="1"), "run", "a__b-1", 1)
    agent.perform(recording, box.sandbox, AgentSpec(name="replay"), again, time.monotonic)
    patch = agent.recorded_answer(recording)
    assert patch is not None
    assert patch == task.patch
    assert (box.testbed / "a.py").read_text() == after
    assert agent.compare_with_recording(recording, again, patch) == Replayed(
        observations=1, differing=[], same_patch=True
    )


def test_endpoint_error_is_raised(box: Box) -> None:
    with open_task(play(SERVER_ERROR), box.sandbox, "oneshot") as (task, server):
        with pytest.raises(InfraError):
            oneshot.act(task)
        assert task.recorder.usage.requests == server.counts.requests == 1


def test_files_are_read_from_head(any_box: Box) -> None:
    commit(
        any_box.testbed,
        "files",
        {"README.rst": "Read me.\r\nTwice.\r", "docs/README.md": "not this", "odd name's $x.py": "é\n", "readme": ""},
    )
    (any_box.testbed / "bytes.py").write_bytes(b"\xff\n")
    (any_box.testbed / "link.py").symlink_to("a.py")
    (any_box.testbed / "out.py").symlink_to("/etc/passwd")
    commit(any_box.testbed, "more", {})
    (any_box.testbed / "a.py").write_text("changed since\n")
    (any_box.testbed / "README.new").write_text("untracked\n")
    names = ["odd name's $x.py", "a.py", "bytes.py", "link.py", "out.py", "gone.py", "b", "two\nlines"]
    about = instance(context=[file(name) for name in names])
    with open_task(play(Answer(ANSWER)), any_box.sandbox, "oneshot", about=about) as (task, _):
        oneshot.act(task)
    texts = ["é\n", "a = 2\n", "\ufffd\n", "a = 2\n"]
    files = [file(name, text) for name, text in zip(names[:4], texts, strict=True)]
    readmes = [file("README.rst", "Read me.\nTwice.\n"), file("readme", "")]
    assert prompt_of(task.recorder.turns) == file_layouts.render_prompt("style-3", ISSUE, readmes, files)
    assert (task.recorder.turns[1].extra or {})["files_left_out"] == ["out.py", "gone.py", "b", "two\nlines"]


def test_files_survive_hidden_history(any_box: Box) -> None:
    hide_history(any_box.sandbox)
    with open_task(play(Answer(ANSWER)), any_box.sandbox, "oneshot", about=instance(context=[file("a.py")])) as (
        task,
        _,
    ):
        oneshot.act(task)
    assert "[start of a.py]\n1 a = 2\n2 \n[end of a.py]" in task.recorder.turns[1].message


def test_files_fill_the_token_limit(box: Box) -> None:
    commit(box.testbed, "large", {"large.py": "x = 1\n" * 4000, "small.py": "y = 1\n"})
    about = instance(context=[file("large.py"), file("small.py"), file("of_the_row.py", "z\n" * 3000)])
    with open_task(play(Answer(ANSWER)), box.sandbox, "oneshot", about=about, max_token_limit=20_000) as (task, _):
        oneshot.act(task)
    turn = task.recorder.turns[1]
    assert (turn.extra or {})["files_left_out"] == ["large.py"]
    assert "[start of small.py]" in turn.message
    assert "[start of of_the_row.py]" in turn.message


def test_oversized_files_are_left_out(box: Box) -> None:
    (box.testbed / "huge.py").write_bytes(b"x = 1\n" * (3 << 20))
    commit(box.testbed, "huge", {"small.py": "y = 1\n"})
    about = instance(context=[file("small.py"), file("huge.py"), file("a.py")])
    with open_task(play(Answer(ANSWER)), box.sandbox, "oneshot", about=about) as (task, _):
        assert oneshot.act(task) is StopReason.FINISHED
    assert (task.recorder.turns[1].extra or {})["files_left_out"] == ["huge.py", "a.py"]


def test_hints_are_part_of_the_issue(box: Box) -> None:
    with open_task(play(Answer(ANSWER)), box.sandbox, "oneshot", about=instance(hints_text="see b/c.py")) as (task, _):
        oneshot.act(task)
    assert f"<issue>\n{ISSUE}\n\nWhat was said about it:\n\nsee b/c.py\n</issue>" in task.recorder.turns[1].message


def test_row_readme_replaces_repo_readme(box: Box) -> None:
    commit(box.testbed, "readme", {"README": "of the repository\n"})
    about = instance(context=[file("README", "of the row", readme=True), file("a.py", "a")])
    with open_task(play(Answer(ANSWER)), box.sandbox, "oneshot", about=about) as (task, _):
        oneshot.act(task)
    expected = file_layouts.render_prompt("style-3", ISSUE, [file("README", "of the row")], [file("a.py", "a")])
    assert prompt_of(task.recorder.turns) == expected


def test_late_answer_is_a_timeout(box: Box) -> None:
    late = play(Answer("late", delay_s=60))
    for timeout_s in (2.0, 20.0):  # a busy machine may need longer to ask
        with open_task(late, box.sandbox, "oneshot", timeout_s=timeout_s) as (task, server):
            assert oneshot.act(task) is StopReason.TIMEOUT
            agrees(task, server)
        if server.counts.requests:
            break
    assert server.counts.requests == 1
