"""State shared by tools during one attempt: sandbox, limits, edit history and shell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from swe_argo.steps.agents.tools.editor import Dialect, Editor
from swe_argo.steps.agents.tools.shell import Shell
from swe_argo.steps.sandbox.protocol import Sandbox


@dataclass
class Session:
    """Tool session of one attempt. ``timeout_s`` limits a command; the agent loop adjusts it."""

    sandbox: Sandbox
    timeout_s: float
    max_observation: int | None = None
    """Characters of a result that the agent sees, instead of the scaffold's own limit."""
    left_s: float = math.inf
    """Remaining seconds of the attempt, which also limit commands that outlast their call."""
    submitted: int = 0
    """Number of submissions by the agent."""
    _editors: dict[Dialect, Editor] = field(default_factory=dict)
    _shells: dict[bool, Shell] = field(default_factory=dict)

    def editor(self, dialect: Dialect) -> Editor:
        """Return the attempt's editor for a dialect, with its edit history."""
        if dialect not in self._editors:
            self._editors[dialect] = Editor(self.sandbox, self.timeout_s, dialect)
        editor = self._editors[dialect]
        editor.files.timeout_s = self.timeout_s
        return editor

    def shell(self, *, persistent: bool) -> Shell:
        """Return the attempt's shell: persistent, or new for every command."""
        if persistent not in self._shells:
            self._shells[persistent] = Shell(self.sandbox, persistent=persistent)
        return self._shells[persistent]
