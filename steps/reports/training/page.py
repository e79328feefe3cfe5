"""``training.html``: like the report's page, one self-contained file without requests."""

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

STEPS_SHOWN = 30
INSTANCES_SHOWN = 30
TO_RUNS = "../../../runs"
"""Relative path from the page's folder to the runs of the same store."""


def render_training(training: StoredTraining, rollouts: Sequence[PickedRollout] = ()) -> bytes:
    """Return the page as UTF-8. ``rollouts``: of the newest step."""
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
            rows=[_row(training, one) for one in reversed(training.steps)],
            most=STEPS_SHOWN,
            most_instances=INSTANCES_SHOWN,
            runs=TO_RUNS,
            held_out_run=lambda step: held_out_run_of(training.file.name, step),
            last=training.checkpoints[-1] if training.checkpoints else None,
            kept=[one for one in reversed(training.checkpoints) if one.kept],
            decimal=decimal,
            utc=utc,
        )
    )
    return as_page(text)


def _sums(steps: Sequence[StepFigures]) -> dict[str, Any]:
    """Return the sums over all steps."""
    tokens, seconds = Counter[str](), Counter[str]()
    for one in steps:
        tokens.update(one.tokens)
        seconds.update({phase: value for phase, value in one.seconds.items() if math.isfinite(value)})
    return {
        "rollouts": sum(one.rollouts for one in steps),
        "learnt": sum(one.learnt for one in steps),
        "failed": sum(one.infra_failures for one in steps),
        "tokens": dict(tokens),
        "seconds": dict(seconds),
        "phases": listing([f"{duration(value)} {phase}" for phase, value in seconds.items() if value]),
    }


def _bar(classes: InstanceClasses) -> Any:
    parts = (
        ("resolved", "always solved", len(classes.always)),
        ("empty", "sometimes solved", len(classes.sometimes)),
        ("unresolved", "never solved", len(classes.never)),
        ("infra", "without a verdict", len(classes.no_verdict)),
        ("waiting", "not tried yet", classes.untried),
    )
    named = [(tone, name, number) for tone, name, number in parts if number]
    return {"segments": stacked([(*part, False) for part in named]), "legend": named}


def _row(training: StoredTraining, one: StepFigures) -> dict[str, Any]:
    summary = training.held_out.get(one.step)
    return {
        "figures": one,
        "held_out": summary.score if summary else None,
        "seconds": sum(value for value in one.seconds.values() if math.isfinite(value)),
    }
