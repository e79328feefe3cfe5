"""Tools of agents: their definitions, the scaffolds' sets of tools, and their effects on a sandbox."""

from swe_argo.steps.agents.tools.foreign_tools import APPLY, KINDS, Kind, shell_command

__all__ = ["APPLY", "KINDS", "Kind", "shell_command"]
