"""Results of tool calls, and the observations shown to an agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToolResult:
    """Result of a tool, before a scaffold cuts and frames it.

    ``exit_code`` is None while a command runs and after a timeout. ``tail`` is the end of a text that was too long to
    fetch; None if ``text`` is complete.
    """

    text: str
    exit_code: int | None = 0
    timed_out: bool = False
    seconds: float = 0.0
    tail: str | None = None
    note: str = ""
    """Additional message to the agent; never cut."""
    running: bool = False
    stopped_for_silence: bool = False
    """Whether the command was left running because it was silent, not because of its time."""
    errors: str | None = None
    """Output on stderr, if separated from ``text``."""
    folder_and_python: tuple[str, str] = ("", "")
    """Current folder of a persistent shell, and its Python."""
    continues_work: bool = False
    """Whether the work continues although the tool is one that ends it."""


@dataclass(frozen=True)
class ToolObservation:
    """Observation of a call for the agent, and the values recorded with it."""

    text: str
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    cut: bool = False
    """Whether ``text`` was cut."""
    ends: bool = False
    """Whether the call ended the work."""
