"""ChosenRecipe -> StoredBundle: an agent's files put together, once."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from steps.bundles.recipes import ChosenRecipe
from steps.bundles.stored import Made, StoredBundle, copy_folder, find_made, keep_bundle
from steps.bundles.tree import digest_tree
from steps.contracts.recipe import Architecture, Recipe
from steps.errors import ConfigError


def architecture_here() -> Architecture:
    """This machine's."""
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "amd64"


def made_of(chosen: ChosenRecipe, architecture: Architecture) -> Made:
    """What the files of a package follow from: its source, its version and its lock."""
    recipe = chosen.recipe
    source = hashlib.sha256(recipe.source.model_dump_json().encode())
    source.update(chosen.lock or b"")
    return Made(recipe.name, recipe.version, source.hexdigest(), architecture, recipe.libc)


def keep_folder(recipe: Recipe, architecture: Architecture) -> StoredBundle:
    """A folder of this machine as it is now, kept for as long as runs need it. Raises ConfigError, ResourceError."""
    folder = Path(recipe.source.folder or "")
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", field="agent.folder")
    try:
        digest = digest_tree(folder).removeprefix("sha256:")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {folder}: {error}", field="agent.folder") from error
    made = Made(recipe.name, recipe.version, digest, architecture, recipe.libc)
    return find_made(made) or keep_bundle(made, copy_folder(folder))
