from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.agents import oneshot, templates
from swe_argo.steps.agents.submission import hide_history
from swe_argo.steps.contracts.data import FileContext, Instance
from swe_argo.steps.contracts.trajectory import StopReason
from tests.model_server import Answer, Fault, play
from tests.model_server.answers import CONTEXT_VLLM, EMPTY
from tests.steps.agents import swebench_inference
from tests.steps.agents.machine import Box, commit
from tests.steps.agents.tasks import ISSUE, agrees, instance, observations, open_task

PATCH = "\ndiff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 2\n+a = 3\n"
ANSWER = f"I would do this.\n<patch>{PATCH}</patch>\n"


def file(path: str, text: str | None = None, **more: Any) -> FileContext:
    return FileContext(path=path, text=text, **more)


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
    assert prompt_of(task.recorder.turns) == templates.render_prompt(style, ISSUE, [], files)
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


def test_files_are_read_from_head(any_box: Box) -> None:
    files = {
        "README.rst": "Read me.\r\nTwice.\r",
        "docs/README.md": "not this",
        "odd name's $x.py": "é\n",
        "readme": "",
    }
    commit(any_box.testbed, "files", files)
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
    contents = [file(name, text) for name, text in zip(names[:4], texts, strict=True)]
    readmes = [file("README.rst", "Read me.\nTwice.\n"), file("readme", "")]
    assert prompt_of(task.recorder.turns) == templates.render_prompt("style-3", ISSUE, readmes, contents)
    assert (task.recorder.turns[1].extra or {})["files_left_out"] == ["out.py", "gone.py", "b", "two\nlines"]


GOOD = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 2\n+a = 3\n"
TAGS = [f"<{end}{name}>" for name in ("patch", "diff", "code", "s") for end in ("", "/")]
FENCES = ["```", "```diff\n", "```python\n", "```patch\n", "`"]
PIECES = st.sampled_from([*TAGS, *FENCES, "\n", " ", "--- a/x\n", "+++ b/x\n", "text", "<", ">"])


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES | st.text(max_size=5), max_size=14).map("".join))
def test_patch_in_matches_swebench(answer: str) -> None:
    assert oneshot.extract_patch(answer) == swebench_inference.extract_diff(answer)


@pytest.mark.parametrize("tag", ["<td>", "<a><b>", "```diff\n"])
def test_patch_in_handles_repetition(tag: str) -> None:
    assert isinstance(oneshot.extract_patch(tag * (600_000 // len(tag))), str)  # an hour by swebench's own expression


@pytest.mark.parametrize(
    ("patch", "command", "after"),
    [
        (GOOD, "git apply --verbose", "a = 3\n"),
        (b"\n" + GOOD, "git apply --verbose", "a = 3\n"),
        (GOOD.replace(b"-1 +1", b"-40,1 +40,1"), "git apply --verbose", "a = 3\n"),
        (GOOD.replace(b"-1 +1", b"-1,2 +1,2") + b" b = 1\n", "patch --batch --forward --fuzz=5 -p1 -i", "a = 3\n"),
        (GOOD.replace(b"-a = 2\n", b" unknown = 1\n-a = 2\n"), None, "a = 2\n"),
        (b"no patch at all", None, "a = 2\n"),
    ],
)
def test_apply_tries_commands_in_order(any_box: Box, patch: bytes, command: str | None, after: str) -> None:
    message, code = oneshot.describe_apply(any_box.sandbox, patch)
    assert (message.startswith(f"taken by {command}" if command else "not taken:\n"), code) == (True, command is None)
    assert (any_box.testbed / "a.py").read_text() == after
    assert not list(any_box.testbed.rglob("*.rej"))


def prompt_of(turns: list[Any]) -> str:
    return f"{turns[0].message}\n{turns[1].message}"


def first_prompt(box: Box, about: Instance, **spec: Any) -> list[Any]:
    """Return the turns of the prompt that it was given."""
    with open_task(play(Answer(ANSWER)), box.sandbox, "oneshot", about=about, **spec) as (task, _):
        assert oneshot.act(task) is StopReason.FINISHED
    return task.recorder.turns[:2]


def test_files_survive_hidden_history(any_box: Box) -> None:
    hide_history(any_box.sandbox)
    _, turn = first_prompt(any_box, instance(context=[file("a.py")], hints_text="see b/c.py"))
    assert "[start of a.py]\n1 a = 2\n2 \n[end of a.py]" in turn.message
    assert f"<issue>\n{ISSUE}\n\nWhat was said about it:\n\nsee b/c.py\n</issue>" in turn.message


def test_files_fill_the_token_limit(box: Box) -> None:
    commit(box.testbed, "large", {"large.py": "x = 1\n" * 4000, "small.py": "y = 1\n"})
    about = instance(context=[file("large.py"), file("small.py"), file("of_the_row.py", "z\n" * 3000)])
    _, turn = first_prompt(box, about, max_token_limit=20_000)
    assert (turn.extra or {})["files_left_out"] == ["large.py"]
    assert "[start of small.py]" in turn.message
    assert "[start of of_the_row.py]" in turn.message
    commit(box.testbed, "huge", {"huge.py": "x = 1\n" * (3 << 20)})
    _, turn = first_prompt(box, instance(context=[file("small.py"), file("huge.py"), file("b/c.py")]))
    assert (turn.extra or {})["files_left_out"] == ["huge.py", "b/c.py"]


def test_row_readme_replaces_repo_readme(box: Box) -> None:
    commit(box.testbed, "readme", {"README": "of the repository\n"})
    turns = first_prompt(box, instance(context=[file("README", "of the row", readme=True), file("a.py", "a")]))
    expected = templates.render_prompt("style-3", ISSUE, [file("README", "of the row")], [file("a.py", "a")])
    assert prompt_of(turns) == expected


def test_late_answer_is_a_timeout(box: Box) -> None:
    for timeout_s in (2.0, 20.0):  # a busy machine may need longer to ask
        late = play(Answer("late", delay_s=60))
        with open_task(late, box.sandbox, "oneshot", timeout_s=timeout_s) as (task, server):
            assert oneshot.act(task) is StopReason.TIMEOUT
            agrees(task, server)
        if server.counts.requests:
            break
    assert server.counts.requests == 1
