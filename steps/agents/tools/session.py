"""What tools share during one attempt: the machine, the limits, the editor's memory, the shell's state."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from swe_argo.steps.agents.tools.editor import Dialect, Editor
from swe_argo.steps.agents.tools.shell import Shell
from swe_argo.steps.sandbox.protocol import Sandbox


@dataclass
class Session:
    """One attempt at one machine. ``timeout_s`` is what a command may take; whoever runs the loop narrows it."""

    sandbox: Sandbox
    timeout_s: float
    max_observation: int | None = None
    """Characters of a call's result that the agent sees, whatever the scaffold's own limits are."""
    left_s: float = math.inf
    """What is left of the attempt: a command that may outlast its call is ended by then."""
    submitted: int = 0
    """How often the agent said that it is done."""
    _editors: dict[Dialect, Editor] = field(default_factory=dict)
    _shells: dict[bool, Shell] = field(default_factory=dict)

    def editor(self, dialect: Dialect) -> Editor:
        """The attempt's editor, which remembers its edits."""
        if dialect not in self._editors:
            self._editors[dialect] = Editor(self.sandbox, self.timeout_s, dialect)
        editor = self._editors[dialect]
        editor.files.timeout_s = self.timeout_s
        return editor

    def shell(self, *, persistent: bool) -> Shell:
        """The attempt's shell, which goes on where its last command ended, or one whose commands all begin anew."""
        if persistent not in self._shells:
            self._shells[persistent] = Shell(self.sandbox, persistent=persistent)
        return self._shells[persistent]
