"""``swe-argo templates``: what E2B holds of a dataset's images. What each needs is imported when it is called."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from swe_argo.steps.planning.selection_words import is_of_templates
from swe_argo.workflows.cli.flags import DEFAULT_STORE, StoreFlag
from swe_argo.workflows.cli.help_pages import Application

console = Console()


def add(app: typer.Typer, with_spec: Callable[..., Callable[..., None]]) -> None:
    """Add the commands. ``with_spec`` gives one the fields of RunSpec that a function chooses as options."""
    group = Application(help="The templates at E2B: build, list, prune.", invoke_without_command=True, callback=_help)
    group.command("build")(with_spec(build, is_of_templates))
    group.command("list")(list_)
    group.command("prune")(prune)
    app.add_typer(group, name="templates")


def build(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="What --dataset of run takes.")],
    workers: Annotated[int, typer.Option("--workers", "-j", min=1, help="Builds at a time.")] = 10,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set any field: --set sandbox.cpus=2.")
    ] = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Build at E2B the templates that hold the images of a dataset, or of what is selected of it.

    With --agent claude-code, say, those that hold the files of an agent program, too.

    Those that are there are left, those that are being built are waited for. Ctrl-C leaves what is finished, and what
    was asked for goes on at E2B; the same command again does the rest. SWE_ARGO_REGISTRY_USERNAME and
    SWE_ARGO_REGISTRY_PASSWORD are handed to E2B for a private registry.

    Exit code 0: all are there; 3: some could not be built; 130: stopped; 64 and 75 as of run.
    """
    from swe_argo.workflows.cli import templates

    spec = templates.read_spec(dataset, flags or {}, set_ or [])
    again = shlex.join(["swe-argo", *sys.argv[1:]])
    raise typer.Exit(templates.build(spec, workers, console, again))


def list_(store: StoreFlag = DEFAULT_STORE) -> None:
    """List the templates that this project has at E2B: image, size, age, and the runs of the store that use them."""
    from swe_argo.workflows.cli import templates

    templates.print_templates(store, console)


def prune(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them without asking.")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Also those that only complete runs use.")] = False,
    store: StoreFlag = DEFAULT_STORE,
) -> None:
    """Remove the templates of this project that no run of the store uses.

    Other stores and other machines may use them: they are listed first.
    """
    from swe_argo.workflows.cli import templates

    templates.prune(store, console, yes=yes, finished=finished)


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
