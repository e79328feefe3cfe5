"""``swe-argo ags``: images and tools of a dataset at Tencent Cloud Agent Sandbox."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.spec_fields import SpecField
from swe_argo.steps.datasets import load, selection
from swe_argo.steps.datasets.files import fetch_inputs
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from swe_argo.steps.families.family import Row
from swe_argo.steps.families.rows import images_of, network_modes_of
from swe_argo.steps.planning.sandboxes import is_of_images
from swe_argo.steps.sandbox import load_backend
from swe_argo.steps.settings import settings
from swe_argo.workflows.cli.help_pages import Application, console
from swe_argo.workflows.cli.spec_sources import DatasetName, read, resume_command, with_fields
from swe_argo.workflows.terminal.activity import ActivityLine
from swe_argo.workflows.terminal.lines import print_line

if TYPE_CHECKING:
    from swe_argo.steps.sandbox.ags.sync import SyncPlan

DEFAULT_MAPPING = "ags-images.json"
_FIELDS = ("sandbox.platform", "sandbox.solve_network", "grading.network")

ags = Application.group("Tencent Cloud Agent Sandbox: sync.")


def is_of_sync(field: SpecField) -> bool:
    """Whether a field is a flag of ``sync``: it decides which images a run needs, or how sandboxes are made of them."""
    is_ags_field = field.path[:2] == ("sandbox", "ags") or field.name in _FIELDS
    return is_ags_field or (is_of_images(field) and field.path[:2] != ("sandbox", "e2b"))


@ags.command("sync")
@with_fields(is_of_sync)
def sync(  # noqa: PLR0917 - every parameter is a flag
    dataset: DatasetName,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="REGISTRY/NAMESPACE",
            help="Registry to copy the images to; by default AGS pulls them from theirs.",
        ),
    ] = None,
    envd_image: Annotated[
        str | None,
        typer.Option("--envd-image", help="Image with /usr/bin/envd for new tools; by default AGS_ENVD_IMAGE."),
    ] = None,
    role_arn: Annotated[
        str | None,
        typer.Option("--role-arn", help="Role with which AGS pulls images; by default TENCENTCLOUD_ROLE_ARN."),
    ] = None,
    copies: Annotated[int, typer.Option("--copies", min=1, max=64, help="Concurrent copies of images.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without making them.")] = False,
    flags: dict[str, Any] | None = None,
) -> None:
    """Copy a dataset's images to a registry for AGS, create missing tools, and write the mapping.

    The mapping is --ags-mapping FILE, by default ags-images.json. Existing images and tools are skipped.

    Exit codes: 0: everything is ready; 3: some images or tools failed; 130: stopped; 64 and 75 as for run.
    """
    load_backend("ags")
    from swe_argo.steps.sandbox.ags.sync import SyncPlan
    from swe_argo.steps.sandbox.ags.tools import network_mode

    spec = read(None, {**(flags or {}), "dataset": dataset}, [])
    rows = _selected_rows(spec)
    networks = {spec.sandbox.solve_network, spec.grading.network}
    if network_modes_of(rows) - {"public"}:
        networks.add(False)
    plan = SyncPlan(
        table=spec.sandbox.ags,
        images=list(dict.fromkeys(image for row in rows for image in images_of(row))),
        modes=[network_mode(network=network) for network in sorted(networks)],
        mapping=Path(spec.sandbox.ags.mapping or DEFAULT_MAPPING).expanduser(),
        copy_to=to,
        registry=spec.sandbox.registry,
        envd_image=envd_image or settings().ags_envd_image,
        role_arn=role_arn or settings().tencentcloud_role_arn,
        cpus=spec.sandbox.cpus,
        memory_mb=spec.sandbox.memory_mb,
        platform=spec.sandbox.platform,
        copies_at_a_time=copies,
    )
    raise typer.Exit(_print_missing(plan) if dry_run else _sync(plan, shlex.join(resume_command())))


def _selected_rows(spec: RunSpec) -> list[Row]:
    """Return the selected rows.

    Raises ConfigError if the dataset or the selection is wrong, InfraError if the hub does not answer.
    """
    with fetch_inputs(spec) as inputs:
        dataset, answers = inputs.dataset, inputs.answers
        loaded = load.load(dataset, spec.split, revision=spec.revision, answers=answers, family=spec.family)
        rows, _ = selection.select(loaded.rows, inputs.select, loaded.by_id)
    return rows


def _print_missing(plan: SyncPlan) -> int:
    """Print the actions of ``sync`` without doing them, and return the exit code."""
    from swe_argo.steps.sandbox.ags.sync import missing_tools

    missing = missing_tools(plan)
    for image in plan.images if plan.copy_to else ():
        print_line(console, f"would copy {image} to {plan.place_of(image).name} unless it exists")
    for tool in missing:
        print_line(console, f"would create tool {tool.name} (network {tool.mode})")
    print_line(console, f"{len(plan.images):,} images, {len(missing):,} tools missing; nothing was changed")
    return EXIT_OK


def _sync(plan: SyncPlan, resume: str) -> int:
    """Copy images, create tools and write the mapping; return the exit code. ``resume``: the command that continues."""
    from swe_argo.steps.sandbox.ags import sync as syncs

    try:
        with ActivityLine(console, f"preparing {len(plan.images):,} images") as line:
            result = syncs.sync(plan, line.now)
    except KeyboardInterrupt:
        print_line(console, f"stopped; continue with: {resume}")
        return EXIT_INTERRUPTED
    for name, reason in result.failed.items():
        print_line(console, f"{name}: {reason}")
    print_line(
        console,
        f"{len(result.copied):,} images copied, {len(result.existing_images):,} existed; "
        f"{len(result.created):,} tools created, {len(result.existing_tools):,} existed; {len(result.failed):,} failed",
    )
    use = f"use them with: --backend ags --ags-mapping {plan.mapping}"
    print_line(console, f"continue with: {resume}" if result.failed else use)
    return EXIT_INCOMPLETE if result.failed else EXIT_OK
