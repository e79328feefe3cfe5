"""What an agent is shown of what a tool did: cut and framed as its project does it, with a command's exit code."""

from __future__ import annotations

from steps.agents.tools import text
from steps.agents.tools.tool import Outcome, Tool

# -- R2E-Gym ---------------------------------------------------------------------------------------------------------

R2EGYM_LINES = 40


def r2egym(tool: Tool, outcome: Outcome, limit: int) -> text.Cut:
    """Exit code, tool, text; of a command's output the first and the last 40 lines."""
    if tool.ends:
        return text.Cut(outcome.text, False)
    cut = text.Cut(outcome.text, text.CLIPPED in outcome.text)
    if tool.kind == "shell":
        cut = text.ends_by_lines(outcome.text, outcome.tail, R2EGYM_LINES)
    if tool.kind != "edit" and len(cut.text) > limit:
        cut = text.Cut(text.ends(cut.text, None, limit).text, True)
    code = -1 if outcome.exit_code is None else outcome.exit_code
    body = _with_notes(cut.text, outcome)
    return text.Cut(f"Exit code: {code}\nExecution output of [{tool.name}]:\n{body}", cut.cut)


# -- OpenHands -------------------------------------------------------------------------------------------------------


def openhands(tool: Tool, outcome: Outcome, limit: int) -> text.Cut:
    """The text, then the exit code, -1 of a command that did not end; of long output the beginning and the end."""
    if tool.kind != "shell":
        return text.Cut(outcome.text, text.CLIPPED in outcome.text)
    whole, tail = outcome.text, outcome.tail
    cut = text.ends(whole.rstrip("\n") if tail is None else whole, tail and tail.rstrip("\n"), limit)
    body = _with_notes(cut.text, outcome)
    if outcome.exit_code is not None:
        body += f"\n[The command completed with exit code {outcome.exit_code}.]"
    elif outcome.running or outcome.timed_out:
        body += "\n[Exit code: -1.]"
    return text.Cut(body, cut.cut)


# -- SWE-agent -------------------------------------------------------------------------------------------------------


def sweagent(tool: Tool, outcome: Outcome, limit: int) -> text.Cut:
    """The text under a heading; of long output the beginning."""
    notice = (
        f"{text.CLIPPED}<NOTE>Only the first {limit} characters are shown. Use head, tail or grep, or send the "
        "output to a file and look at parts of it.</NOTE>"
    )
    cut = text.beginning(outcome.text, outcome.tail, limit, notice)
    if tool.kind == "shell":
        body = _with_notes(cut.text, outcome).rstrip("\n")
        if not body.strip() and outcome.exit_code == 0:
            body = "The command ran successfully and printed nothing."
        code = "none" if outcome.exit_code is None else outcome.exit_code
        return text.Cut(f"OBSERVATION:\n{body}\n[exit code: {code}]", cut.cut)
    return text.Cut(f"OBSERVATION:\n{cut.text}", cut.cut or text.CLIPPED in cut.text)


def _with_notes(body: str, outcome: Outcome) -> str:
    notes = [outcome.note] if outcome.note else []
    if outcome.timed_out:
        notes.append(f"[The command took too long, {outcome.seconds:.0f} seconds, and was ended.]")
    return "\n".join([body.rstrip("\n") if notes else body, *notes]) if body or notes else body
