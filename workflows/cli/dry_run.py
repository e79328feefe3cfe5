"""A run before it is one: what it would do, on what, and what it may take. No model is asked."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.planning.preview import RunPreview, preview_run
from swe_argo.steps.reports.text.formatting import count, duration, listing, money, size
from swe_argo.steps.reports.text.visible import make_visible
from swe_argo.steps.sandbox import mini_images
from swe_argo.workflows.local.runner import worker_count

NAMED = 10
"""Instances and images that are named."""


def print_preview(spec: RunSpec, console: Console) -> None:
    """Raises ConfigError, as plan would, and InfraError."""
    preview = preview_run(spec)
    workers = min(worker_count(spec), max(len(preview.to_do), 1))
    lines = [
        *(f"note: {notice}" for notice in preview.notices),
        *_units(spec, preview),
        *_sandboxes(spec, preview, workers),
        _estimate(preview, workers),
        *_prompt(spec, preview),
    ]
    for line in lines:
        console.print(Text(make_visible(line)), soft_wrap=True)


def _units(spec: RunSpec, preview: RunPreview) -> list[str]:
    ids = list(dict.fromkeys(unit.instance_id for unit in preview.units))
    repos = Counter({unit.instance_id: unit.repo for unit in preview.units}.values())
    done = len(preview.units) - len(preview.to_do)
    before = f", {done:,} done before" if done else ""
    many = listing([f"{repo} {number:,}" for repo, number in repos.most_common(NAMED)])
    agent = agent_of(spec.agent).name
    who = agent if preview.model == agent else f"{agent}, {preview.model}"
    return [
        f"run {spec.run_id}: {count(len(preview.to_do), 'unit')} to do{before}: {count(len(ids), 'instance')} of "
        f"{preview.dataset}, {count(spec.attempts, 'attempt')} each, agent {who}",
        f"repositories: {many}" + (f" and {len(repos) - NAMED} more" if len(repos) > NAMED else ""),
        f"instances: {', '.join(ids[:NAMED])}" + (f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""),
    ]


def _sandboxes(spec: RunSpec, preview: RunPreview, workers: int) -> list[str]:
    sandbox = spec.sandbox
    limits = [f"{sandbox.cpus:g} CPUs"] if sandbox.cpus else []
    limits += [f"{sandbox.memory_mb:,} MiB"] if sandbox.memory_mb else []
    words = f"sandboxes: backend {sandbox.backend}, {count(workers, 'unit')} at a time"
    return [words + (f", {' and '.join(limits)} each" if limits else ""), f"images: {_images(spec, preview.images)}"]


def _images(spec: RunSpec, images: list[str]) -> str:
    """How many, and how large: of those that a Docker engine of this machine has, what it says."""
    if mini_images(spec.sandbox.backend) == "folders":
        return "none, its sandboxes are folders"
    shown = f"{len(images):,}, as {images[0]}" if images else "none"
    if spec.sandbox.backend != "docker" or not images:
        return shown
    from swe_argo.steps.sandbox.docker.disk import IMAGE_BYTES
    from swe_argo.steps.sandbox.docker.engine import connect_engine
    from swe_argo.steps.sandbox.docker.images import local_image

    try:
        api = connect_engine().api
        found = [inspected for image in images if (inspected := local_image(api, image)) is not None]
    except StepError as error:
        return f"{shown}; the engine was not asked: {error.reason}"
    missing = len(images) - len(found)
    pulled = f", {missing:,} to pull, some {size(missing * IMAGE_BYTES)}" if missing else ""
    return f"{shown}; {len(found):,} here ({size(sum(int(each['Size']) for each in found))}){pulled}"


def _estimate(preview: RunPreview, workers: int) -> str:
    earlier, units = preview.earlier, len(preview.to_do)
    if not units:
        return "estimate: nothing is left to do"
    if earlier is None:
        return "estimate: no earlier run of this agent, model and dataset in the store tells what it takes"
    seconds = duration(units * earlier.seconds / workers)
    cost = f" and {money(units * earlier.usd)} for the model" if earlier.usd is not None else ", at no known price"
    return f"estimate: {seconds}{cost}, by run {earlier.run_id}, whose units took {duration(earlier.seconds)} each"


def _prompt(spec: RunSpec, preview: RunPreview) -> list[str]:
    if not preview.prompt:
        agent = agent_of(spec.agent)
        why = "is written when its sandbox is there" if agent.asks_model else "is none: no model is asked"
        return [f"first prompt: it {why}"]
    lines = [f"first prompt, of {preview.units[0].instance_id}:"]
    for message in preview.prompt:
        lines += ["", f"-- {message['role']}", *str(message["content"]).splitlines()]
    return lines
