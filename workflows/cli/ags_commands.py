"""``swe-argo ags``: what AGS needs of a dataset. What the commands need is imported when they are called."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from swe_argo.steps.contracts.spec_fields import SpecField
from swe_argo.steps.planning.selection_words import is_of_images
from swe_argo.workflows.cli.help_pages import Application

console = Console()
_FIELDS = ("sandbox.platform", "sandbox.solve_network", "grading.network")


def add(app: typer.Typer, with_spec: Callable[..., Callable[..., None]]) -> None:
    """Add the commands. ``with_spec`` gives one the fields of RunSpec that a function chooses as options."""
    group = Application(help="Tencent Cloud Agent Sandbox: sync.", invoke_without_command=True, callback=_print_help)
    group.command("sync")(with_spec(sync, is_of_sync))
    app.add_typer(group, name="ags")


def is_of_sync(field: SpecField) -> bool:
    """Whether a field says which images a run needs, and how it pulls and connects them."""
    is_ours = field.path[:2] == ("sandbox", "ags") or field.name in _FIELDS
    return is_ours or (is_of_images(field) and field.path[:2] != ("sandbox", "e2b"))


def sync(  # noqa: PLR0917 - every parameter is a flag
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="What --dataset of run takes.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="REGISTRY/NAMESPACE", help="Copy the images there by skopeo; else AGS pulls them as named."
        ),
    ] = None,
    envd_image: Annotated[
        str | None,
        typer.Option("--envd-image", help="Image that holds /usr/bin/envd, for new tools; else AGS_ENVD_IMAGE."),
    ] = None,
    role_arn: Annotated[
        str | None,
        typer.Option("--role-arn", help="Role by which AGS pulls images; else TENCENTCLOUD_ROLE_ARN."),
    ] = None,
    copies: Annotated[int, typer.Option("--copies", min=1, max=64, help="Images copied at a time.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    flags: dict[str, Any] | None = None,
) -> None:
    """Copy a dataset's images to where AGS pulls them from, make the tools that are missing, and write the mapping.

    The mapping is --ags-mapping FILE, ags-images.json by default. The same again does only what is missing.

    Exit code 0: all is ready; 3: some images or tools failed; 130: stopped; 64 and 75 as of run.
    """
    from swe_argo.workflows.cli import ags, spec_sources

    spec = spec_sources.read(None, {**(flags or {}), "dataset": dataset}, [])
    again = shlex.join(["swe-argo", *sys.argv[1:]])
    where = ags.SyncTarget(to=to, envd_image=envd_image, role_arn=role_arn, copies_at_a_time=copies)
    raise typer.Exit(ags.print_missing(spec, where, console) if dry_run else ags.sync(spec, where, console, again))


def _print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
