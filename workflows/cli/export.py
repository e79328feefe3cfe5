"""Exports of runs to other projects' file formats, at a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from swe_argo.steps import export as exports
from swe_argo.steps.agents.first_messages import is_scaffold_style
from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.store import open_store
from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.verl import dataset as verl
from swe_argo.workflows.verl.prompt_files import VerlOptions


def export(
    store: str, run: str, form: exports.ExportFormat, out: Path | None, console: Console, *, force: bool
) -> None:
    """Export a run and print the path; ``force``: replace existing files.

    Raises ConfigError if there is no such run or the files exist, InfraError if the store fails.
    """
    with console.status(f"exporting {run}"):
        result = exports.export(open_store(store), run, form, out, force=force)
    _print_notes(result.notices, console)
    console.print(f"{count(result.units, 'unit')} in {result.path}", highlight=False, soft_wrap=True, markup=False)


def export_verl(store: str, name: str | None, options: VerlOptions, flags: dict[str, Any], console: Console) -> None:
    """Export prompts for verl: of the run ``name``, else of the dataset ``name``, by default a sample of verl.DATASET.

    ``flags``: chosen fields of RunSpec, for a dataset only. Raises ConfigError and InfraError as ``export``.
    """
    opened = open_store(store)
    if name is not None and opened.get_many([key(RunFile, name)]):
        if flags:
            raise ConfigError(f"remove the flags of a dataset: {name} is a run, with its own sandboxes and limits")
        with console.status(f"exporting {name}"):
            files = verl.export_run(opened, name, options)
    else:
        dataset = {"dataset": name or verl.DATASET, "store": store}
        sample = {} if name or "select_k" in flags else {"select_k": verl.SAMPLE}
        scaffold = {"agent_name": options.style} if options.style and is_scaffold_style(options.style) else {}
        spec = spec_sources.read(None, {**flags, **dataset, **sample, **scaffold, "run_id": verl.RUN}, [])
        files = verl.export_dataset(spec if name else verl.sample_spec(spec), options)
    _print_notes(files.notices, console)
    console.print(files.word, highlight=False, soft_wrap=True, markup=False)


def _print_notes(notices: list[str], console: Console) -> None:
    for notice in notices:
        console.print(f"note: {notice}", style="dim", highlight=False, soft_wrap=True, markup=False)
