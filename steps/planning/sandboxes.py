"""Preparation of a run's sandboxes: bundled images, and the readiness of the backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.progress_lines import count_progress, print_progress
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import mini, names, task_images
from swe_argo.steps.families.rows import machines_of
from swe_argo.steps.planning.selection_words import selection_words
from swe_argo.steps.sandbox import mini_images, readiness
from swe_argo.steps.sandbox.bundle_mounts import find_mount
from swe_argo.steps.sandbox.group_folders import group_notices
from swe_argo.steps.settings import settings


def prepare_sandboxes(
    spec: RunSpec,
    dataset: str,
    selected: list[dict[str, Any]],
    environments: Mapping[str, Path],
    program: AgentProgram | None = None,
) -> readiness.ReadinessResult:
    """Build the images of bundled and folder tasks, then check that the backend can run the sandboxes.

    ``environments``: image -> build folder, for tasks that are folders; not built if the spec names a registry.
    """
    images = {row["instance_id"]: row["image"] for row in selected}
    form = mini_images(spec.sandbox.backend) if names.is_bundled(dataset) else None
    if form == "folders" and spec.sandbox.local.images is None:
        for item in count_progress(images.items(), "making repositories"):
            mini.prepare(settings().local_images, dict([item]), dataset)
    elif form == "containers":
        from swe_argo.steps.sandbox.docker import engine

        client = engine.connect_engine()
        for item in count_progress(images.items(), "building images"):
            mini.build(client, dict([item]), settings().mini_base_image, dataset)
    built = {image: folder for image, folder in environments.items() if image in images.values()}
    if built and not spec.sandbox.registry:
        _make_task_images(spec, built)
    print_progress(f"checking that backend {spec.sandbox.backend} can run {len(images):,} images")
    agent = agent_of(spec.agent)
    sandbox_needs = readiness.SandboxNeeds(
        images=list(dict.fromkeys(images.values())),
        acts=agent.runs_commands,
        solves=agent.solves,
        grading_network=spec.grading.network,
        timeout_s=max(spec.grading.timeout_s, spec.agent.timeout_s if agent.takes_time else 0.0),
        machines=machines_of(selected),
        bundle=find_mount(program),
        selection=selection_words(spec),
    )
    result = readiness.ready(spec.sandbox, sandbox_needs)
    return replace(result, notices=[*result.notices, *group_notices(spec.sandbox, spec.attempts)])


def _make_task_images(spec: RunSpec, environments: Mapping[str, Path]) -> None:
    """Build the images of tasks that are folders, in the form that the backend uses."""
    form = mini_images(spec.sandbox.backend)
    if form == "folders" and spec.sandbox.local.images is None:
        task_images.make_folders(settings().local_images, environments)
    elif form == "containers":
        from swe_argo.steps.sandbox.docker import engine

        client = engine.connect_engine()
        for item in count_progress(environments.items(), "building images"):
            task_images.build(client, dict([item]), settings().mini_base_image)
