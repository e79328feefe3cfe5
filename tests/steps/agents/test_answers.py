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
def test_the_patch_in_an_answer_is_the_one_swebench_takes(answer: str) -> None:
    assert answers.patch_in(answer) == swebench_inference.extract_diff(answer)


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
def test_elements_come_before_fences_and_names_before_both(answer: str, patch: str) -> None:
    assert answers.patch_in(answer) == patch == swebench_inference.extract_diff(answer)


@pytest.mark.parametrize("tag", ["<td>", "<a><b>", "```diff\n"])
def test_an_answer_that_repeats_a_tag_until_it_is_cut_off_is_read_at_once(tag: str) -> None:
    assert isinstance(answers.patch_in(tag * (600_000 // len(tag))), str)  # an hour by swebench's own expression


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
def test_a_patch_is_applied_by_the_first_command_that_takes_it(
    any_box: Box, patch: bytes, command: str | None, after: str
) -> None:
    taken, said = answers.apply(any_box.sandbox, patch)
    assert taken == command, said
    assert (any_box.testbed / "a.py").read_text() == after
    assert not list(any_box.testbed.rglob("*.rej"))
