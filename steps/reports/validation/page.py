"""Self-contained page of a validation."""

from __future__ import annotations

from swe_argo.steps.contracts.validation import Fitness, Validation
from swe_argo.steps.reports.page.templating import as_page, page_templates
from swe_argo.steps.reports.text.formatting import utc
from swe_argo.steps.reports.text.visible import cut_line, make_visible
from swe_argo.steps.reports.validation.flips import find_flip_bound

MAX_TESTS = 20
LINE_WIDTH = 240

LABELS: dict[str, tuple[str, str, str]] = {
    Fitness.GOLD_FAILS: ("Gold fails", "the reference patch never resolves it: no agent can, here", "infra"),
    Fitness.IDLE_RESOLVES: (
        "Idle resolves",
        "the untouched repository is resolved: any agent resolves the instance",
        "unapplied",
    ),
    Fitness.FLAKY: ("Flaky", "the reference patch resolves the instance only sometimes", "unresolved"),
    Fitness.NOT_GRADEABLE: ("Not gradeable", "the row cannot be graded, so the instance was not run", "waiting"),
    Fitness.INCOMPLETE: ("Incomplete", "at least one run has no verdict", "waiting"),
    Fitness.VALID: ("Valid", "the reference patch resolves it every time, the untouched repository never", "resolved"),
}
"""Fitness -> name, meaning and colour; worst first."""


def render_validation(validation: Validation) -> bytes:
    """Return the page as UTF-8. Names of tests and reasons are sanitized before the template escapes them."""
    instances = validation.instances
    unfit = [item for fitness in LABELS for item in instances if item.fitness == fitness != Fitness.VALID]
    remarkable = [item for item in instances if item.fitness == Fitness.VALID and item.passing_untouched]
    resources, dataset = validation.resources, validation.dataset
    limits = (
        ("CPUs", resources.cpus),
        ("MiB of memory", resources.memory_mb),
        ("MiB of disk", resources.disk_mb),
        ("resource factor", None if resources.resource_factor == 1 else resources.resource_factor),
    )
    facts = [
        ("Dataset", f"{dataset.name}, {dataset.split}"),
        ("Revision", dataset.revision or f"rows {dataset.sha256[:12]}"),
        ("Instances", f"{len(validation.instances):,}"),
        ("Runs", f"gold {validation.gold_runs} times, idle once"),
        *([("Flips", bound.sentence)] if (bound := find_flip_bound(validation)) else []),
        ("Sandboxes", "; ".join(resources.machines) or resources.backend),
        (
            "Limits",
            ", ".join(f"{value:g} {name}" for name, value in limits if value is not None) or "the backend's own",
        ),
        ("Tests", f"{resources.timeout_s:,} s, network {'open' if resources.grading_network else 'closed'}"),
        ("Versions", ", ".join(f"{name} {value}" for name, value in validation.versions.items())),
        ("Planned", utc(validation.created_at)),
    ]
    text = (
        page_templates()
        .get_template("validation.html.j2")
        .render(
            validation=validation,
            labels=LABELS,
            facts=[(name, make_visible(value)) for name, value in facts],
            unfit=unfit,
            remarkable=remarkable,
            most=MAX_TESTS,
            line=lambda text: cut_line(make_visible(text), LINE_WIDTH),
        )
    )
    return as_page(text)
