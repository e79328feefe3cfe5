"""A small agent program for tests of agent programs: the script ``small-agent`` beside this file."""

from __future__ import annotations

from pathlib import Path

from swe_argo.steps.contracts.recipe import Recipe

FOLDER = Path(__file__).parent
_WORDS = ["--base-url", "{base_url}", "--model", "{model}", "--task", "{instruction_file}"]


def words(protocol: str = "chat", *more: str) -> list[str]:
    """Return the arguments of its command line."""
    return ["--protocol", protocol, *_WORDS, *more]


def recipe(program: str, protocol: str = "chat", *more: str) -> Recipe:
    """Return a recipe without files; ``program`` is its path in the sandbox."""
    return Recipe.model_validate(
        {"name": "small-agent", "protocol": protocol, "command": ["python3", program, *words(protocol, *more)]}
    )
