"""Tools of other agents by their names in recordings, and the effect of each on a sandbox."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Effect of a tool call."""

    SHELL = "shell"
    """A command in a new shell in the repository."""
    SESSION = "session"
    """A command in a shell that keeps its folder and exported variables between calls."""
    EDIT = "edit"
    """``create``, ``str_replace``, ``insert``, ``undo_edit`` or ``view`` of a file."""
    SEARCH = "search"
    """A text search in files; reads only."""
    PATCH = "patch"
    """A diff applied to the repository, as the grader applies it."""
    NOTHING = "nothing"
    """No effect on the machine."""
    END = "end"
    """The end of the agent's work."""


APPLY = "apply_diff"
"""Name of the tool call for a patch that is an agent's whole answer; its only argument is ``patch``."""
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
    ),  # a sub-agent's own calls are recorded
    **dict.fromkeys(("update_plan", "view_image"), Kind.NOTHING),
    **dict.fromkeys(("read", "glob", "grep", "list", "todowrite", "todoread", "task"), Kind.NOTHING),
    **dict.fromkeys(("read_file", "list_directory", "grep_search", "todo_write"), Kind.NOTHING),
    **dict.fromkeys(("finish", "submit"), Kind.END),
}
"""Tools of R2E-Gym's scaffolds, OpenHands' CodeAct agent and SDK, mini-swe-agent, our oneshot; usual names of others;
for Claude Code, Codex, opencode and Qwen Code the tools that run commands or change nothing."""


def shell_command(arguments: dict[str, object]) -> str:
    """Return the shell command among a call's arguments, "" if there is none."""
    for key in ("command", "cmd"):
        if isinstance(value := arguments.get(key), str):
            return value
    return ""
