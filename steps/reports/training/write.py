"""Writer of a training's ``report/`` folder."""

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

    Returns the data of the page. Idempotent, because all data comes from the store. Raises ConfigError if there is no
    such training, InfraError if the store fails.
    """
    training = read_training(store, name)
    newest = training.steps[-1] if training.steps else None
    rollouts = pick_rollouts(store, newest.run, f"{training.file.spec.seed} {newest.step}") if newest else []
    store.put(_key(name, METRICS_FILE), metrics_file(training))
    store.put(training_page_key(name), render_training(training, rollouts))
    return training


def training_page_key(name: str) -> str:
    """Return the store key of a training's page."""
    return _key(name, TRAINING_PAGE)


def _key(name: str, file: str) -> str:
    return f"{Place.TRAINING.format(run=name)}/report/{file}"
