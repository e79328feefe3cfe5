"""``training.html``: a self-contained page about a training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from swe_argo.steps.contracts.training import StepFigures, held_out_run_of
from swe_argo.steps.reports.labels import STANDINGS
from swe_argo.steps.reports.page.charts import stacked
from swe_argo.steps.reports.page.templating import as_page, page_templates
from swe_argo.steps.reports.text.formatting import decimal, duration, listing, utc
from swe_argo.steps.reports.text.visible import make_visible
from swe_argo.steps.reports.training.curves import mean_of
from swe_argo.steps.reports.training.describe import describe_measurements, find_doubts, training_facts
from swe_argo.steps.reports.training.drawings import draw_training
from swe_argo.steps.reports.training.instances import InstanceClasses, classify_instances
from swe_argo.steps.reports.training.rollouts import PickedRollout
from swe_argo.steps.reports.training.stored_training import StoredTraining

MAX_STEPS = 30
MAX_INSTANCES = 30
RUNS_PATH = "../../../runs"
"""Relative path from the page's folder to the runs of the same store."""


def render_training(training: StoredTraining, rollouts: Sequence[PickedRollout] = ()) -> bytes:
    """Return the page as UTF-8. ``rollouts``: examples of the newest step."""
    classes = classify_instances(training.steps, training.file.pool)
    text = (
        page_templates()
        .get_template("training.html.j2")
        .render(
            training=training,
            spec=training.file.spec,
            drawings=draw_training(training),
            mean_of=mean_of(len(training.steps)),
            measured=describe_measurements(training),
            doubts=find_doubts(training),
            facts=[(name, make_visible(value)) for name, value in training_facts(training)],
            sums=_sums(training.steps),
            rollouts=rollouts,
            standings=STANDINGS,
            classes=classes,
            bar=_bar(classes),
            rows=[_row(training, item) for item in reversed(training.steps)],
            most=MAX_STEPS,
            most_instances=MAX_INSTANCES,
            runs=RUNS_PATH,
            held_out_run=lambda step: held_out_run_of(training.file.name, step),
            last=training.checkpoints[-1] if training.checkpoints else None,
            kept=[item for item in reversed(training.checkpoints) if item.is_permanent],
            decimal=decimal,
            utc=utc,
        )
    )
    return as_page(text)


def _sums(steps: Sequence[StepFigures]) -> dict[str, Any]:
    """Return the sums over all steps."""
    tokens, seconds = Counter[str](), Counter[str]()
    for step in steps:
        tokens.update(step.tokens)
        seconds.update({phase: value for phase, value in step.seconds.items() if math.isfinite(value)})
    return {
        "rollouts": sum(step.rollouts for step in steps),
        "learnt": sum(step.learnt for step in steps),
        "failed": sum(step.infra_failures for step in steps),
        "tokens": dict(tokens),
        "seconds": dict(seconds),
        "phases": listing([f"{duration(value)} {phase}" for phase, value in seconds.items() if value]),
    }


def _bar(classes: InstanceClasses) -> Any:
    """Return the bar of the pool's instances by class, and its legend."""
    parts = (
        ("resolved", "always solved", len(classes.always)),
        ("empty", "sometimes solved", len(classes.sometimes)),
        ("unresolved", "never solved", len(classes.never)),
        ("infra", "without a verdict", len(classes.no_verdict)),
        ("waiting", "not tried yet", classes.untried),
    )
    non_empty = [(tone, name, number) for tone, name, number in parts if number]
    return {"segments": stacked([(*part, False) for part in non_empty]), "legend": non_empty}


def _row(training: StoredTraining, figures: StepFigures) -> dict[str, Any]:
    """Return the values of a step's row."""
    summary = training.held_out.get(figures.step)
    return {
        "figures": figures,
        "held_out": summary.score if summary else None,
        "seconds": sum(value for value in figures.seconds.values() if math.isfinite(value)),
    }
