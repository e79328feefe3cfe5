"""Building of an agent's bundle from a recipe, once per content."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from swe_argo.steps.bundles.npm import install_npm, lock_npm
from swe_argo.steps.bundles.pypi import install_pypi, lock_pypi
from swe_argo.steps.bundles.recipes import ChosenRecipe
from swe_argo.steps.bundles.stored import Made, StoredBundle, copy_folder, find_made, keep_bundle
from swe_argo.steps.bundles.tree import digest_tree
from swe_argo.steps.contracts.progress_lines import doing
from swe_argo.steps.contracts.recipe import Architecture, Recipe
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.host.folders import temporary_folder


def architecture_here() -> Architecture:
    """Return this machine's architecture."""
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "amd64"


def made_of(chosen: ChosenRecipe, architecture: Architecture) -> Made:
    """Return the inputs that determine a package's files: its source, version and lock."""
    recipe = chosen.recipe
    source = hashlib.sha256(recipe.source.model_dump_json().encode())
    source.update(chosen.lock or b"")
    return Made(recipe.name, recipe.version, source.hexdigest(), architecture, recipe.libc)


def build_bundle(chosen: ChosenRecipe, architecture: Architecture) -> StoredBundle:
    """Return a package's bundle, built if it is not stored. Raises ConfigError, InfraError, ResourceError."""
    made = made_of(chosen, architecture)
    if there := find_made(made):
        return there
    recipe = chosen.recipe
    if architecture not in recipe.architectures:
        raise ConfigError(f"{recipe.name} runs on {', '.join(recipe.architectures)} alone", field="--architecture")
    doing(f"bringing {recipe.name} {recipe.version} for {architecture}")

    def fill(files: Path) -> dict[str, str]:
        install = install_npm if recipe.source.npm else install_pypi
        with temporary_folder() as scratch:
            return install(chosen, architecture, files, scratch)

    return keep_bundle(made, fill)


def lock_package(chosen: ChosenRecipe) -> bytes:
    """Return the lock of the recipe's package version, for the file beside the recipe. Raises as building does."""
    lock = lock_npm if chosen.recipe.source.npm else lock_pypi
    with temporary_folder() as scratch:
        return lock(chosen, scratch)


def keep_folder(recipe: Recipe, architecture: Architecture) -> StoredBundle:
    """Return a bundle with a copy of a local folder as it is now. Raises ConfigError, ResourceError."""
    folder = Path(recipe.source.folder or "")
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", field="agent.folder")
    try:
        digest = digest_tree(folder).removeprefix("sha256:")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {folder}: {error}", field="agent.folder") from error
    made = Made(recipe.name, recipe.version, digest, architecture, recipe.libc)
    return find_made(made) or keep_bundle(made, copy_folder(folder))
