"""Extraction of a patch from a model's answer, by the rule of SWE-bench's own inference, and its application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.apply_commands import RESET, try_commands
from swe_argo.steps.sandbox.protocol import ExecResult, Sandbox

_OPENING_TAG = re.compile(r"<([\w-]+)>")
_FENCE = re.compile(r"```(\w+)?\n(.*?)```", re.DOTALL)
_PATCH_PATH = "/var/tmp/swe-argo-answer.diff"  # noqa: S108 - path in the sandbox
_TIMEOUT_S = 900.0


def extract_patch(answer: str) -> str:
    """Return the patch in an answer as swebench 5.0.2's extract_diff does.

    It is the first of these that exists: an element ``<diff>`` or ``<patch>``; a code fence of these names; an element
    of any name; a fence of any name; all text up to ``</s>``.
    """
    blocks = [*_elements(answer), *_FENCE.findall(answer)]
    tagged = next((text for name, text in blocks if name in ("diff", "patch")), None)
    if tagged is not None:
        return str(tagged)
    return str(blocks[0][1]) if blocks else answer.partition("</s>")[0]


def _elements(answer: str) -> Iterator[tuple[str, str]]:
    r"""Yield name and content of each match of ``<([\w-]+)>(.*?)</\1>``, in linear time.

    The expression itself takes minutes if a model repeats one tag until it is cut off, as it seeks the end of each.
    Here a tag without an end is sought once.
    """
    position, unclosed = 0, set()
    while match := _OPENING_TAG.search(answer, position):
        name, position = match[1], match.end()
        end = -1 if name in unclosed else answer.find(f"</{name}>", position)
        if end < 0:
            unclosed.add(name)
        else:
            yield name, answer[position:end]
            position = end + len(f"</{name}>")


def is_patch(text: str) -> bool:
    """Return whether a text contains a line that a patch program could use."""
    return re.search(r"^(diff --git |--- |@@ )", text, re.MULTILINE) is not None


def describe_apply(box: Sandbox, patch: bytes) -> tuple[str, int]:
    """Apply the patch. Return a message about the result, and 0 if a command accepted the patch, else 1.

    Raises as ``apply``.
    """
    command, output = apply(box, patch)
    return (f"taken by {command}", 0) if command else (f"not taken:\n{output}", 1)


def apply(box: Sandbox, patch: bytes) -> tuple[str | None, str]:
    """Apply ``patch`` as the grader will. Return the accepting command or None, and its output.

    Raises the errors of Sandbox, and InfraError if a command does not end in time.
    """
    box.write(_PATCH_PATH, patch)
    output = ""
    for command, result in try_commands(partial(_run, box), _PATCH_PATH):
        output = result.stdout.decode("utf-8", "replace")
        if result.exit_code == 0:
            return command, output
    _run(box, RESET)
    return None, output


def _run(box: Sandbox, command: str) -> ExecResult:
    """Run a command, both streams merged. Raises InfraError if it does not end in time."""
    result = box.exec(command, timeout_s=_TIMEOUT_S, merge=True, max_output_bytes=1 << 20)
    if result.timed_out:
        raise InfraError(FailureClass.EXEC, f"{command!r} did not end within {_TIMEOUT_S:.0f} s")
    return result
