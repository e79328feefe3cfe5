"""The commands that say what there is to run before anything runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.spec_fields import SpecField
from swe_argo.workflows.cli import spec_sources

console = Console()
TITLE_WIDTH = 72
"""Characters of an issue's first line."""


def add(app: typer.Typer, with_spec: Callable[..., Callable[..., None]]) -> None:
    """Add the commands. ``with_spec`` gives one the fields of RunSpec that a function chooses as options."""
    app.command()(datasets)
    app.command()(with_spec(instances, _chooses_instances))


def _chooses_instances(field: SpecField) -> bool:
    is_selection = field.path[0] == "select" and field.path[1] not in (
        *("validated", "keep_invalid", "skip_not_gradeable"),
    )
    return is_selection or field.name in ("dataset", "split", "revision", "family", "answers")


def datasets() -> None:
    """List the datasets that have a name here. Any other is a hub id, a file of rows, or a task repo."""
    from swe_argo.steps.datasets.known import list_known
    from swe_argo.workflows.terminal.columns import columns

    rows = [[each.name, each.family, each.splits, each.source] for each in list_known()]
    title, *lines = columns([["--dataset", "family", "splits, instances", "hub id"], *rows])
    console.print(Text(title, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    console.print(Text("those of one: swe-argo instances -d NAME", style="dim"), soft_wrap=True)


def instances(
    file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="A spec; flags win over it.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: all that an agent may know of it.")
    ] = False,
    flags: dict[str, Any] | None = None,
) -> None:
    """List the instances that a run of these flags would have: id, repository, first line of the issue.

    Those that a validation leaves out are still there.
    """
    from swe_argo.steps.reports.text.formatting import count
    from swe_argo.steps.reports.text.visible import make_visible
    from swe_argo.workflows.api.instances import read_instances
    from swe_argo.workflows.terminal.columns import columns

    request = spec_sources.read_request(file, flags or {}, [])
    found = read_instances(request)
    if as_json:
        for each in found:
            sys.stdout.write(json.dumps(each.model_dump(mode="json", exclude_defaults=True)) + "\n")
        return
    rows = [[each.instance_id, make_visible(each.repo), _title(each.problem_statement)] for each in found]
    for line in columns(rows) if rows else []:
        console.print(Text(line), soft_wrap=True)
    console.print(Text(f"{count(len(rows), 'instance')} of {request.spec.dataset}", style="dim"), soft_wrap=True)


def _title(issue: str) -> str:
    from swe_argo.steps.reports.text.visible import make_visible

    line = make_visible(next((line.strip(" #") for line in issue.splitlines() if line.strip(" #")), ""))
    return line if len(line) <= TITLE_WIDTH else f"{line[: TITLE_WIDTH - 1]}…"
