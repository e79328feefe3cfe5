"""The command line that is proposed for a spec."""

from __future__ import annotations

import shlex

from swe_argo.steps.planning.selection_words import selection_words
from swe_argo.workflows.cli import spec_sources


def test_agent_program_flags_are_printed() -> None:
    flags = {"dataset": "mini", "select_k": 2, "agent_model": "openai/x"}
    assert selection_words(spec_sources.read(None, {**flags, "agent_name": "r2egym"}, [])) == "mini --k 2"
    codex = spec_sources.read(None, {**flags, "agent_name": "codex", "agent_version": "0.169.0"}, [])
    assert shlex.split(selection_words(codex)) == ["mini", "--k", "2", "--agent", "codex", "--agent-version", "0.169.0"]
    own = spec_sources.read(None, {**flags, "agent_command": "./go --task {instruction}", "agent_folder": "here"}, [])
    words = shlex.split(selection_words(own))
    assert words[3:] == ["--agent", "program", "--agent-command", "./go --task {instruction}", "--agent-folder", "here"]
