"""An agent program of this project's own, for tests of what runs them: the script ``small-agent`` beside this file."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.contracts.recipe import Recipe

FOLDER = Path(__file__).parent
_WORDS = ["--base-url", "{base_url}", "--model", "{model}", "--task", "{instruction_file}"]


def words(protocol: str = "chat", *more: str) -> list[str]:
    """What stands behind its name on its command line."""
    return ["--protocol", protocol, *_WORDS, *more]


def recipe(program: str, protocol: str = "chat", *more: str) -> Recipe:
    """A recipe for it without files of its own; ``program`` is where the sandbox has it."""
    return Recipe.model_validate(
        {"name": "small-agent", "protocol": protocol, "command": ["python3", program, *words(protocol, *more)]}
    )
