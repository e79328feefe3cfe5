from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.agents import answers
from tests.steps.agents import swebench_inference
from tests.steps.agents.machine import Box

GOOD = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 2\n+a = 3\n"
TAGS = [f"<{end}{name}>" for name in ("patch", "diff", "code", "s") for end in ("", "/")]
FENCES = ["```", "```diff\n", "```python\n", "```patch\n", "`"]
PIECES = st.sampled_from([*TAGS, *FENCES, "\n", " ", "--- a/x\n", "+++ b/x\n", "text", "<", ">"])


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES | st.text(max_size=5), max_size=14).map("".join))
def test_patch_in_matches_swebench(answer: str) -> None:
    assert answers.extract_patch(answer) == swebench_inference.extract_diff(answer)


@pytest.mark.parametrize(
    ("answer", "patch"),
    [
        ("Here:\n<patch>\n--- a/x\n</patch> bye", "\n--- a/x\n"),
        ("```diff\n--- a/x\n```", "--- a/x\n"),
        ("```python\nx\n```\n<patch>p</patch>", "p"),
        ("<code>x</code>", "x"),
        ("--- a/x\n+++ b/x</s></s>", "--- a/x\n+++ b/x"),
        ("", ""),
    ],
)
def test_elements_precede_fences(answer: str, patch: str) -> None:
    assert answers.extract_patch(answer) == patch == swebench_inference.extract_diff(answer)


@pytest.mark.parametrize("tag", ["<td>", "<a><b>", "```diff\n"])
def test_patch_in_handles_repetition(tag: str) -> None:
    assert isinstance(answers.extract_patch(tag * (600_000 // len(tag))), str)  # an hour by swebench's own expression


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
    used_command, output = answers.apply(any_box.sandbox, patch)
    assert used_command == command, output
    assert (any_box.testbed / "a.py").read_text() == after
    assert not list(any_box.testbed.rglob("*.rej"))
