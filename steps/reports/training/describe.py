"""A training as text: measurements, doubts and settings."""

from __future__ import annotations

from swe_argo.steps.reports.figures.caveats import MAX_WITHOUT_VERDICT
from swe_argo.steps.reports.figures.summary import Rate
from swe_argo.steps.reports.text.formatting import count, percent, utc
from swe_argo.steps.reports.training.metrics import infra_share
from swe_argo.steps.reports.training.stored_training import StoredTraining


def find_doubts(training: StoredTraining) -> list[str]:
    """Return reasons to doubt the curves or to change the training, as sentences."""
    doubts = [f"{place} cannot be read: it is broken or from another version." for place in training.unreadable]
    missing = len(training.checkpoints) - len(training.steps)
    if missing > 0 and not training.unreadable:
        doubts.append(f"The store lacks the figures of {count(missing, 'step')}.")
    for step, summary in training.held_out.items():
        if not summary.valid:
            without = count(len(summary.without_verdict), "unit")
            doubts.append(f"The measurement after step {step} is not a valid score: {without} have no verdict.")
    idle_steps = 0
    for figures in reversed(training.steps):
        if figures.learnt:
            break
        idle_steps += 1
    if idle_steps:
        last = "the last step" if idle_steps == 1 else f"the last {idle_steps} steps"
        doubts.append(f"Nothing was learnt in {last}: every group had equal rewards.")
    newest = training.steps[-1] if training.steps else None
    if newest and (infra_share(newest) or 0) > MAX_WITHOUT_VERDICT:
        failed = f"{newest.infra_failures} of {count(newest.rollouts, 'rollout')}"
        doubts.append(f"{failed} of step {newest.step} have no verdict because of infrastructure failures.")
    return doubts


def describe_rate(rate: Rate) -> str:
    """Return a measured rate: ``31.0 % of 50 (20.0 to 44.6 %)``."""
    if rate.rate is None:
        return "nothing measured"
    return f"{percent(rate.rate)} % of {rate.total:,} ({percent(rate.low)} to {percent(rate.high)} %)"


def describe_measurements(training: StoredTraining) -> list[tuple[str, str]]:
    """Return (time, rate) of the first, the best and the newest measurement."""
    steps = [step for step, summary in training.held_out.items() if summary.score is not None]
    if not steps:
        return []
    best = max(steps, key=lambda step: training.held_out[step].headline.rate or 0.0)
    chosen = {steps[0]: "first", best: "best", steps[-1]: "newest"}
    return [
        (
            "before the first step" if step == 0 else f"after step {step}",
            describe_rate(training.held_out[step].headline) + (", the best" if word == "best" else ""),
        )
        for step, word in sorted(chosen.items())
    ]


def training_facts(training: StoredTraining) -> list[tuple[str, str]]:
    """Return (name, value) pairs: model, data and settings."""
    file, spec = training.file, training.file.spec
    loss, held_out = spec.loss, spec.held_out
    clip = f", clipped to {loss.clip_low:g} and {loss.clip_high:g}" if loss.name != "importance_sampling" else ""
    every = f"every {count(held_out.every, 'step')}" if held_out.every else "never"
    agent, sandbox = spec.run.agent, spec.run.sandbox
    facts = [
        ("Base model", spec.base_model),
        ("Dataset", f"{file.dataset.name}, {file.dataset.split}"),
        ("Revision", file.dataset.revision or f"rows {file.dataset.sha256[:12]}"),
        ("Trained on", count(len(file.pool), "instance")),
        ("Measured with", f"{count(len(file.held_out), 'instance')}, {every}" if file.held_out else "nothing"),
        ("Excluded", count(len(file.left_out), "instance") if file.left_out else ""),
        ("Step", f"{count(spec.groups, 'instance')}, {spec.group_size} rollouts each"),
        ("Weights", f"LoRA of rank {spec.lora_rank}, seed {spec.seed}"),
        ("Learning rate", f"{spec.lr:g}"),
        ("Loss", f"{loss.name}{clip}"),
        (
            "Advantages",
            f"reward minus the group's mean{', divided by its deviation' if loss.divide_by_std else ''}",
        ),
        ("Rollouts stopped by a limit", loss.limit_stopped.replace("_", " ")),
        ("Suspect verdicts", loss.suspect),
        ("Unconfirmed verdicts", loss.unconfirmed),
        ("Agent", agent.name),
        ("Sandboxes", sandbox.backend),
        ("Maximum lag", count(spec.max_lag, "step")),
        ("Code", f"swe-argo {file.versions.get('swe-argo', 'unknown')} {file.versions.get('code', '')[:12]}".strip()),
        ("Started", utc(file.created_at)),
    ]
    return [(name, value) for name, value in facts if value]
