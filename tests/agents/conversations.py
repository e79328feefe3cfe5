"""Model answers for the real agent programs: the reference patch of a mini instance, by each program's own tools."""

from __future__ import annotations

from typing import Any

from tests.model_server import Answer, Call, Fault, Script, by_text, play
from tests.solutions import TESTS, edits, rows

SHELLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "claude-code": ("Bash", "command", {"description": "Work"}),
    "codex": ("exec_command", "cmd", {}),
    "opencode": ("bash", "command", {"description": "Work"}),
    "qwen-code": ("run_shell_command", "command", {"is_background": False}),
    "openhands-cli": ("terminal", "command", {"security_risk": "LOW", "summary": "Work"}),
}
"""Tool, its argument for a command, and its other required arguments."""


def answers(agent: str, instance: str) -> list[Answer]:
    """Return the model's answers, in turn."""
    patch = rows()[instance]["patch"]
    if agent == "aider":
        return [Answer(_blocks(patch))]
    commands = {
        "I look at what there is.": "ls && git status --short",
        "This mends it.": f"git apply <<'END_OF_PATCH'\n{patch}END_OF_PATCH",
        "Now the tests.": TESTS,
    }
    return [*(_answer(agent, thought, command) for thought, command in commands.items()), Answer("The issue is fixed.")]


def solving(agent: str, *instances: str) -> Script:
    """Return a model that solves these instances, recognised by the first lines of their issues."""
    return by_text({_title(name): _script(agent, name) for name in instances}, otherwise=play(Answer("Ready.")))


def _script(agent: str, instance: str) -> Script:
    replies = answers(agent, instance)
    if agent != "aider":
        return play(*replies)

    def script(_: dict[str, object]) -> Answer | Fault:
        return replies[0]  # its prompt begins with a made-up conversation

    return script


def _answer(agent: str, thought: str, command: str) -> Answer:
    tool, argument, more = SHELLS[agent]
    return Answer(thought, calls=(Call(tool, {argument: command, **more}),))


def _blocks(patch: str) -> str:
    """Return a patch in aider's edit format diff."""
    return "\n\n".join(
        f"{edit.path}\n```python\n<<<<<<< SEARCH\n{edit.old}=======\n{edit.new}>>>>>>> REPLACE\n```"
        for edit in edits(patch)
    )


def _title(instance: str) -> str:
    return str(rows()[instance]["problem_statement"]).partition("\n")[0]
