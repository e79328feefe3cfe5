"""The check that the service can provide a run's sandboxes, made before anything is created."""

from __future__ import annotations

from statistics import fmean

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.progress_lines import doing
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.e2b.prices import hourly_price
from swe_argo.steps.sandbox.e2b.service import service_options
from swe_argo.steps.sandbox.e2b.stored_templates import READY, is_there, list_templates
from swe_argo.steps.sandbox.e2b.template_builds import TemplateBuilds, build_templates
from swe_argo.steps.sandbox.e2b.templates import WantedTemplate, needed_templates
from swe_argo.steps.sandbox.readiness import ReadinessResult, SandboxNeeds, places_notice

AROUND_S = 600.0
"""Seconds of a sandbox's life besides its agent or tests: hiding the history, taking the patch, reading the log."""


def ready(spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    """Check the service, and build missing templates if the spec says so.

    Raises ConfigError: no key or a refused one, a template that is missing or cannot be built, a command longer than a
    sandbox may live; InfraError if the service does not answer.
    """
    service_options()
    if sandbox_needs.timeout_s + AROUND_S > spec.e2b.longest_life_s:
        raise ConfigError(
            f"agent or tests may take {sandbox_needs.timeout_s:g} s, and {AROUND_S:g} s are needed around them, but a "
            f"sandbox lives {spec.e2b.longest_life_s:g} s at most (Hobby 3600, Pro 86400): lower --agent-timeout and "
            "--timeout, or say --e2b-longest-life",
            field="sandbox.e2b.longest_life_s",
        )
    sizes = ((image, sandbox_needs.machine_of(image)) for image in sandbox_needs.images)
    images = ((image, machine.cpus, machine.memory_mb) for image, machine in sizes)
    needed = needed_templates(spec, images, sandbox_needs.bundle)
    _refuse_missing_of_mapping(needed.mapped)
    stored = list_templates() if needed.wanted else {}
    missing = [each for each in needed.wanted if each.name not in stored or stored[each.name].state != READY]
    if missing and not spec.e2b.build_templates:
        command = f"swe-argo templates build {sandbox_needs.selection}".rstrip()
        raise ConfigError(
            f"{len({each.image for each in missing})} of {len(sandbox_needs.images)} images have no template at E2B"
            f"{_with_files(missing)} ({missing[0].image} is to be {missing[0].name} for one): build them with "
            f"{command}, or name those that hold them in a file of "
            "--e2b-templates",
            field="sandbox.backend",
            failure_class=FailureClass.IMAGE_MISSING,
        )
    if missing:
        _build(missing)
    machines = [sandbox_needs.machine_of(image) for image in sandbox_needs.images]
    prices = [hourly_price(spec.e2b, spec.cpus or own.cpus, spec.memory_mb or own.memory_mb) for own in machines]
    return ReadinessResult(
        notices=places_notice(spec.e2b.sandboxes, "E2B"),
        usd_per_hour=fmean(prices) if prices else None,
    )


def _with_files(missing: list[WantedTemplate]) -> str:
    """Return the note that only the templates with the agent's files are missing, if so."""
    return " with the agent's files" if all(each.bundle for each in missing) else ""


def _refuse_missing_of_mapping(mapped: dict[str, str]) -> None:
    for image, template in mapped.items():
        if not is_there(template):
            raise ConfigError(
                f"E2B has no template {template!r}, which the file names for {image}",
                field="sandbox.e2b.templates",
                failure_class=FailureClass.IMAGE_MISSING,
            )


def _build(missing: list[WantedTemplate]) -> None:
    def tell(progress: TemplateBuilds, _finished: WantedTemplate | None, _seconds: float) -> None:
        failed = f", {len(progress.failed)} failed" if progress.failed else ""
        doing(f"building templates at E2B: {progress.done:,} of {progress.total:,}{failed}")

    failed = build_templates(missing, tell).failed
    if failed:
        first, reason = next(iter(failed.items()))
        raise ConfigError(
            f"{len(failed)} of {len(missing)} templates could not be built at E2B, that of {first.image} for one: "
            f"{reason}",
            field="sandbox.backend",
            failure_class=FailureClass.IMAGE_MISSING,
        )
