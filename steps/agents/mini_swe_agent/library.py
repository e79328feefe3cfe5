"""Import of mini-swe-agent: its agent, parsers and prompts for SWE-bench, without its models' dependencies."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.errors import ConfigError, extra_hint

ACTION_REGEX = r"```mswea_bash_command\s*\n(.*?)\n```"
"""Copied from LitellmTextbasedModelConfig, which cannot be imported without litellm."""
_CONFIGS = {True: "swebench.yaml", False: "swebench_backticks.yaml"}
"""Whether tools are called by function calling -> the library's packaged configuration for SWE-bench."""
_FULL_OUTPUT_CHARACTERS = 10_000
"""Characters of output that its templates show in full; of longer output, half of that from each end."""


@dataclass(frozen=True)
class Library:
    """The used parts of the library."""

    agent: Any
    """DefaultAgent."""
    exceptions: Any
    toolcall: Any
    """minisweagent.models.utils.actions_toolcall."""
    text: Any
    """minisweagent.models.utils.actions_text."""
    configs: Path


def load() -> Library:
    """Import the library. Raises ConfigError if it is not installed."""
    # On import the library prints a banner, creates a folder in the user's home and reads variables from a file in it,
    # unless these are set: only the spec configures a step. This folder exists and has no such file.
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = str(Path(__file__).resolve().parent)
    try:
        from minisweagent import exceptions
        from minisweagent.agents.default import DefaultAgent
        from minisweagent.config import builtin_config_dir
        from minisweagent.models.utils import actions_text, actions_toolcall
    except ImportError as error:
        raise ConfigError(
            f"agent 'mini-swe-agent' needs the library mini-swe-agent ({error}): {extra_hint('mini-swe-agent')}",
            field="agent.name",
        ) from None
    return Library(DefaultAgent, exceptions, actions_toolcall, actions_text, builtin_config_dir / "benchmarks")


def swebench_config(library: Library, *, fn_calling: bool, max_observation: int | None) -> dict[str, dict[str, Any]]:
    """Return the library's SWE-bench settings: agent, environment, model. ``max_observation`` replaces its 10,000."""
    import yaml

    settings: dict[str, dict[str, Any]] = yaml.safe_load((library.configs / _CONFIGS[fn_calling]).read_text("utf-8"))
    if max_observation is not None:
        template = settings["model"]["observation_template"]
        for default, limit in (
            (_FULL_OUTPUT_CHARACTERS, max_observation),
            (_FULL_OUTPUT_CHARACTERS // 2, max_observation // 2),
        ):
            template = re.sub(rf"\b{default}\b", str(limit), template)
        settings["model"]["observation_template"] = template
    return settings
