"""The tools of other agents, by the names their recordings use, and what each means for a sandbox."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What performing a tool's call means."""

    SHELL = "shell"
    """A command in a new shell in the repository."""
    SESSION = "session"
    """A command in a shell that keeps its folder and its exported variables from call to call."""
    EDIT = "edit"
    """``create``, ``str_replace``, ``insert``, ``undo_edit`` or ``view`` of a file."""
    SEARCH = "search"
    """A text looked for in files; reads only."""
    PATCH = "patch"
    """A diff applied to the repository, as the grader does it."""
    NOTHING = "nothing"
    """No effect on the machine."""
    END = "end"
    """The agent says it is done."""


APPLY = "apply_diff"
"""The tool that a patch stands under where it is all that an agent gave; its one argument is ``patch``."""
KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        ("bash", "execute_bash", "execute_command", "run_command", "run_shell_command", "shell", "run", "cmd"),
        Kind.SHELL,
    ),
    **dict.fromkeys(("Bash", "exec_command"), Kind.SHELL),
    **dict.fromkeys(("bash_session", "terminal"), Kind.SESSION),
    **dict.fromkeys(("str_replace_editor", "str_replace_based_edit_tool", "file_editor", "edit"), Kind.EDIT),
    **dict.fromkeys(("search", "search_dir"), Kind.SEARCH),
    APPLY: Kind.PATCH,
    **dict.fromkeys(("think", "task_tracker"), Kind.NOTHING),
    **dict.fromkeys(
        ("Read", "Glob", "Grep", "TodoWrite", "Agent", "Task"), Kind.NOTHING
    ),  # a sub-agent's calls are there
    **dict.fromkeys(("update_plan", "view_image"), Kind.NOTHING),
    **dict.fromkeys(("read", "glob", "grep", "list", "todowrite", "todoread", "task"), Kind.NOTHING),
    **dict.fromkeys(("read_file", "list_directory", "grep_search", "todo_write"), Kind.NOTHING),
    **dict.fromkeys(("finish", "submit"), Kind.END),
}
"""Of R2E-Gym's scaffolds, OpenHands' CodeAct agent and SDK, mini-swe-agent, our oneshot; the usual names of others; of
Claude Code, Codex, opencode and Qwen Code those that run commands or change nothing."""


def shell_command(arguments: dict[str, object]) -> str:
    """The shell command among the arguments of a call."""
    for key in ("command", "cmd"):
        if isinstance(value := arguments.get(key), str):
            return value
    return ""
