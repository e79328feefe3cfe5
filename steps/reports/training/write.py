"""A training in the store -> its folder ``report/``."""

from __future__ import annotations

from swe_argo.steps.contracts.record import Place
from swe_argo.steps.reports.training.metrics import METRICS_FILE, metrics_file
from swe_argo.steps.reports.training.page import render_training
from swe_argo.steps.reports.training.rollouts import pick_rollouts
from swe_argo.steps.reports.training.stored_training import StoredTraining, read_training
from swe_argo.steps.store import Store

TRAINING_PAGE = "training.html"


def write_training_page(store: Store, name: str) -> StoredTraining:
    """Write ``trainings/<name>/report/``: ``metrics.jsonl``, then ``training.html``, of a training in any state.

    ``name``: the training's. Returns what the page shows; ``training_page_key(name)`` is where it lies. Everything
    comes from the store (its steps, its checkpoints, the reports of the runs that measured), so that it can be called
    whenever one of them changed, and again. Raises ConfigError where there is no such training, InfraError when the
    store fails.
    """
    training = read_training(store, name)
    newest = training.steps[-1] if training.steps else None
    rollouts = pick_rollouts(store, newest.run, f"{training.file.spec.seed} {newest.step}") if newest else []
    store.put(_key(name, METRICS_FILE), metrics_file(training))
    store.put(training_page_key(name), render_training(training, rollouts))
    return training


def training_page_key(name: str) -> str:
    """The store key of the page of a training."""
    return _key(name, TRAINING_PAGE)


def _key(name: str, file: str) -> str:
    return f"{Place.TRAINING.format(run=name)}/report/{file}"
