"""The agent that performs recorded actions again: what they do now, not what they did then."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from steps.agents.editor import Editor, RefusedError
from steps.agents.journal import Journal
from steps.agents.tools import KINDS, Kind, command
from steps.contracts.run import AgentSpec
from steps.contracts.trajectory import Action, Recording, Result, ResultExtra, StopReason, ToolCall
from steps.sandbox.protocol import Sandbox

MAX_OBSERVATION = 64 << 10
"""Bytes of a command's output that a trajectory keeps."""
SHELL_ENV = {"BASH_ENV": "$HOME/.bashrc"}
"""SWE-bench images activate their conda environment there, and a plain ``bash -c`` would miss it; bash expands it."""
SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""A first line of output that ends a mini-swe-agent (its own convention)."""
_STATE = "${TMPDIR:-/tmp}/.shell-session"


@dataclass(frozen=True)
class _Seen:
    observation: str
    exit_code: int | None = None
    timed_out: bool = False


def act(
    recording: Recording, sandbox: Sandbox, spec: AgentSpec, journal: Journal, clock: Callable[[], float]
) -> StopReason:
    """Perform the actions in order; each joins ``journal`` with what came of it, so that a lost machine leaves them.

    Ends at ``finish`` or ``submit``, at the last action, or when ``spec.timeout_s`` is over. A command that fails or is
    ended by ``spec.command_timeout_s`` is an observation. Raises what Sandbox raises.
    """
    end = clock() + spec.timeout_s
    editor = Editor(sandbox, spec.command_timeout_s)
    for action in recording.actions:
        kind = KINDS.get(action.tool)
        if kind is Kind.END:
            _note(journal, action, _Seen(""), 0.0)
            return StopReason.FINISHED
        left = end - clock()
        if left <= 0:
            return StopReason.TIMEOUT
        began = clock()
        seen = _perform(kind, action, sandbox, editor, min(left, spec.command_timeout_s))
        _note(journal, action, seen, clock() - began)
        if kind is Kind.SHELL and seen.observation.lstrip().startswith(SUBMITTED):
            return StopReason.FINISHED
    return StopReason.TIMEOUT if clock() > end else StopReason.FINISHED


def _perform(kind: Kind | None, action: Action, sandbox: Sandbox, editor: Editor, timeout_s: float) -> _Seen:
    match kind:
        case Kind.SHELL:
            seen = _run(command(action.arguments), sandbox, timeout_s)
        case Kind.SESSION:
            seen = _run(_in_session(command(action.arguments)), sandbox, timeout_s)
        case Kind.SEARCH:
            seen = _run(_search(action), sandbox, timeout_s)
        case Kind.EDIT:
            editor.timeout_s = timeout_s
            try:
                seen = _Seen(_plain(editor.act(action.arguments)), 0)
            except RefusedError as refusal:
                seen = _Seen(_plain(str(refusal)), 1)
        case Kind.NOTHING:
            seen = _Seen("")
        case _:  # recordings are checked when they are read; one made otherwise says what was left out
            seen = _Seen(f"tool {action.tool!r} is unknown and was not performed", 1)
    return seen


def _run(script: str, sandbox: Sandbox, timeout_s: float) -> _Seen:
    done = sandbox.exec(script, timeout_s=timeout_s, env=SHELL_ENV, merge=True, max_output_bytes=MAX_OBSERVATION)
    text = done.stdout.decode("utf-8", "replace")
    if done.truncated:
        text += f"\n[output past {MAX_OBSERVATION >> 10} KiB was left out]"
    return _Seen(text, done.exit_code, done.timed_out)


def _in_session(script: str) -> str:
    """What a shell would know from its earlier commands is kept in a file: exported variables and the folder."""
    keep = f'{{ export -p; printf "cd -- %q\\n" "$PWD"; }} >"{_STATE}"'
    return f'trap \'{keep}\' EXIT\n[ ! -f "{_STATE}" ] || . "{_STATE}" 2>/dev/null\n{script}'


def _search(action: Action) -> str:
    term = str(action.arguments.get("search_term", ""))
    return f"grep -rn -- {shlex.quote(term)} {shlex.quote(str(action.arguments.get('path') or '.'))}"


def _plain(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _note(journal: Journal, action: Action, seen: _Seen, seconds: float) -> None:
    call = ToolCall(tool_call_id=f"call-{len(journal.turns)}", function_name=action.tool, arguments=action.arguments)
    extra = ResultExtra(exit_code=seen.exit_code, timed_out=seen.timed_out, seconds=round(seconds, 3))
    journal.did("", [call], [Result(source_call_id=call.tool_call_id, content=seen.observation, extra=extra)])
