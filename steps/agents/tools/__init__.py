"""What agents act with: tools as values, the sets that scaffolds are made of, and what they do to a sandbox."""

from swe_argo.steps.agents.tools.foreign_tools import APPLY, KINDS, Kind, shell_command

__all__ = ["APPLY", "KINDS", "Kind", "shell_command"]
