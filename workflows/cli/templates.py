"""Templates at E2B at a terminal: built with a line each, listed, removed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.data import TaskMachine
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets.bucket_inputs import fetch_inputs
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_OK, InfraError, StepError
from swe_argo.steps.families.rows import machines_of
from swe_argo.steps.planning.dataset import read_dataset
from swe_argo.steps.planning.program import resolve_program
from swe_argo.steps.reports.text.formatting import count, duration, listing
from swe_argo.steps.sandbox import load_part
from swe_argo.steps.sandbox.bundle_mounts import mount_of
from swe_argo.steps.store import open_store
from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.cli.template_uses import ImageUse, find_uses
from swe_argo.workflows.terminal.activity import ActivityLine
from swe_argo.workflows.terminal.columns import columns

EXIT_INTERRUPTED = 130


def read_spec(dataset: str, flags: dict[str, Any], sets: list[str]) -> RunSpec:
    """What is selected, and how large its machines are. Raises ConfigError, also where the extra is missing."""
    load_part("e2b", "template_builds", "build_templates")
    return spec_sources.read(None, {**flags, "dataset": dataset, "sandbox_backend": "e2b"}, sets)


def build(spec: RunSpec, workers: int, console: Console, again: str) -> int:
    """Build what is missing. Returns the exit code; raises ConfigError, InfraError."""
    from swe_argo.steps.sandbox.e2b.service import service_options
    from swe_argo.steps.sandbox.e2b.template_builds import TemplateBuilds, build_templates
    from swe_argo.steps.sandbox.e2b.templates import WantedTemplate, needed_templates

    service_options()
    progress = TemplateBuilds(0)
    try:
        with ActivityLine(console, "templates") as doing:
            with fetch_inputs(spec) as here:
                dataset = read_dataset(spec, here, None, open_store(spec.store))
                machines = machines_of(dataset.rows)
                images = {row["image"]: machines.get(row["image"], TaskMachine()) for row in dataset.rows}
                sizes = ((image, machine.cpus, machine.memory_mb) for image, machine in images.items())
                program = resolve_program(spec, here, None)
                needed = needed_templates(here.sandbox, sizes, mount_of(program))

            def tell(now: TemplateBuilds, finished: WantedTemplate | None, seconds: float) -> None:
                nonlocal progress
                progress = now
                doing.now(_progress_line(now))
                if finished:
                    _print(console, _line(now, finished, seconds))

            held = {each.image for each in needed.wanted}
            also = f", each also with the files of {program.recipe.name}" if program and program.bundle else ""
            _print(console, f"{count(len(held), 'image')} of {dataset.lock.name}{also}")
            if needed.mapped:
                _print(console, f"{count(len(needed.mapped), 'image')} more by {spec.sandbox.e2b.templates}")
            progress = build_templates(needed.wanted, tell, at_a_time=workers)
    except KeyboardInterrupt:
        going_on = f", {len(progress.building)} go on at E2B" if progress.building else ""
        _print(console, f"stopped: {_counts(progress)}{going_on}; to go on: {again}")
        return EXIT_INTERRUPTED
    except InfraError as error:
        error.add_note(f"to go on: {again}")
        raise
    _print(console, f"{_counts(progress)}; {duration(progress.seconds)}")
    if progress.failed:
        _print(console, f"to try what failed again: {again}")
    return EXIT_INCOMPLETE if progress.failed else EXIT_OK


def _line(progress: Any, finished: Any, seconds: float) -> str:
    if (why := progress.failed.get(finished)) is not None:
        return f"failed  {finished.image}: {why}"
    return f"built   {finished.name} ({finished.image}), {duration(seconds)}"


def _progress_line(progress: Any) -> str:
    left = f", about {duration(progress.seconds_left)} left" if progress.seconds_left else ""
    return f"{progress.done:,} of {progress.total:,} done, {len(progress.building)} building{left}"


def _counts(progress: Any) -> str:
    parts = [f"{len(progress.built):,} built", f"{len(progress.there):,} there before"]
    parts += [f"{len(progress.failed):,} failed"] if progress.failed else []
    return f"{count(progress.total, 'template')}: {listing(parts)}"


def print_templates(store: str, console: Console) -> None:
    """A line each, oldest first. Raises ConfigError, InfraError."""
    stored, uses = _stored_and_used(store)
    if not stored:
        _print(console, "no templates of this project at E2B")
        return
    lines = [_described(each, uses) for each in stored]
    title, *rows = columns([["template", "state", "size", "age", "image", "runs"], *lines], right=(3,))
    console.print(Text(title, style="bold"), soft_wrap=True)
    for row in rows:
        console.print(Text(row), soft_wrap=True)


def prune(store: str, console: Console, *, yes: bool, finished: bool) -> None:
    """List what no run uses, ask, and remove it. Raises ConfigError, InfraError, typer.Abort."""
    from swe_argo.steps.sandbox.e2b.stored_templates import remove_template

    stored, uses = _stored_and_used(store)
    unused = [each for each in stored if not _keepers(uses.get(_key(each)), finished=finished)]
    if not unused:
        _print(console, f"no unused templates; {count(len(stored), 'template')} in use" if stored else "no templates")
        return
    for row in columns([_described(each, uses) for each in unused], right=(3,)):
        console.print(Text(row), soft_wrap=True)
    if not yes:
        if not sys.stdin.isatty():
            flag = " --finished" if finished else ""
            _print(console, f"{len(unused)} found; remove them with: swe-argo templates prune{flag} --yes")
            return
        typer.confirm(f"remove {count(len(unused), 'template')}?", abort=True)
    failures = 0
    for each in unused:
        try:
            remove_template(each)
        except StepError as error:
            failures += 1
            _print(console, f"{each.name} could not be removed: {error.reason}")
    _print(console, f"{len(unused) - failures} removed")


def _stored_and_used(store: str) -> tuple[list[Any], dict[str, ImageUse]]:
    ask = load_part("e2b", "stored_templates", "list_templates")
    oldest = datetime.min.replace(tzinfo=UTC)
    stored = sorted(ask().values(), key=lambda each: (each.created_at or oldest, each.name))
    return stored, find_uses(open_store(store))


def _key(template: Any) -> str:
    from swe_argo.steps.sandbox.e2b.templates import name_without_size

    return name_without_size(template.name)


def _keepers(use: ImageUse | None, *, finished: bool) -> list[str]:
    """The runs for which it is kept."""
    if use is None:
        return []
    return use.unfinished if finished else use.runs


def _described(template: Any, uses: dict[str, ImageUse]) -> list[str]:
    use = uses.get(_key(template))
    size = f"{template.cpus} vCPU, {template.memory_mb} MiB" if template.cpus else ""
    age = duration((datetime.now(UTC) - template.created_at).total_seconds()) if template.created_at else ""
    runs = listing([f"{run} (unfinished)" if run in use.unfinished else run for run in use.runs]) if use else "none"
    return [template.name, template.state, size, age, use.image if use else "unknown to this store", runs]


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
