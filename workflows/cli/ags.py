"""``swe-argo ags``: what a dataset's images need at Tencent Cloud Agent Sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import load, selection
from swe_argo.steps.datasets.bucket_inputs import fetch_inputs
from swe_argo.steps.errors import EXIT_INCOMPLETE, EXIT_OK
from swe_argo.steps.sandbox import load_part
from swe_argo.steps.settings import settings
from swe_argo.workflows.cli.session import EXIT_INTERRUPTED
from swe_argo.workflows.terminal.activity import ActivityLine

if TYPE_CHECKING:
    from swe_argo.steps.sandbox.ags.sync import SyncPlan

DEFAULT_MAPPING = "ags-images.json"


@dataclass(frozen=True)
class SyncTarget:
    """What the command line says beside the spec."""

    to: str | None
    envd_image: str | None
    role_arn: str | None
    copies_at_a_time: int


def images_of(spec: RunSpec) -> list[str]:
    """The images of the selected rows, each once. Raises ConfigError."""
    with fetch_inputs(spec) as here:
        loaded = load.load(here.dataset, spec.split, revision=spec.revision, answers=here.answers, family=spec.family)
        rows, _ = selection.select(loaded.rows, here.select, loaded.by_id)
    return list(dict.fromkeys(row["image"] for row in rows))


def print_missing(spec: RunSpec, target: SyncTarget, console: Console) -> int:
    """What ``sync`` would do. Returns the exit code. Raises ConfigError, InfraError."""
    from swe_argo.steps.sandbox.ags.sync import missing_tools

    plan = plan_of(spec, target)
    missing = missing_tools(plan)
    for image in plan.images if plan.to else ():
        _say(console, f"would copy {image} to {plan.place_of(image).name} unless it is there")
    for each in missing:
        _say(console, f"would create tool {each.name} (network {each.mode})")
    _say(console, f"{len(plan.images):,} images, {len(missing):,} tools are missing; nothing was changed")
    return EXIT_OK


def sync(spec: RunSpec, target: SyncTarget, console: Console, again: str) -> int:
    """Copy, create, wait, write. Returns the exit code. Raises ConfigError, InfraError."""
    from swe_argo.steps.sandbox.ags import sync as syncs

    plan = plan_of(spec, target)
    try:
        with ActivityLine(console, f"preparing {len(plan.images):,} images") as doing:
            result = syncs.sync(plan, doing.now)
    except KeyboardInterrupt:
        _say(console, f"stopped; to go on: {again}")
        return EXIT_INTERRUPTED
    for name, why in result.failed.items():
        _say(console, f"{name}: {why}")
    _say(
        console,
        f"{len(result.copied):,} images copied, {len(result.there):,} were there; "
        f"{len(result.created):,} tools created, {len(result.kept):,} were there; {len(result.failed):,} failed",
    )
    _say(console, f"to go on: {again}" if result.failed else f"for runs: --backend ags --ags-mapping {plan.mapping}")
    return EXIT_INCOMPLETE if result.failed else EXIT_OK


def plan_of(spec: RunSpec, target: SyncTarget) -> SyncPlan:
    """What is wanted. Raises ConfigError where the extra is missing, or nothing is selected."""
    load_part("ags", "backend", "connect")
    from swe_argo.steps.sandbox.ags.sync import SyncPlan
    from swe_argo.steps.sandbox.ags.tools import network_mode

    return SyncPlan(
        table=spec.sandbox.ags,
        images=images_of(spec),
        modes=[network_mode(network=each) for each in sorted({spec.sandbox.solve_network, spec.grading.network})],
        mapping=Path(spec.sandbox.ags.mapping or DEFAULT_MAPPING).expanduser(),
        to=target.to,
        registry=spec.sandbox.registry,
        envd_image=target.envd_image or settings().ags_envd_image,
        role_arn=target.role_arn or settings().tencentcloud_role_arn,
        cpus=spec.sandbox.cpus,
        memory_mb=spec.sandbox.memory_mb,
        platform=spec.sandbox.platform,
        copies_at_a_time=target.copies_at_a_time,
    )


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
