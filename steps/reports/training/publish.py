"""Publication of a training after each change: its page, its figures, and the figures at W&B."""

from __future__ import annotations

import logging

from swe_argo.steps.errors import StepError
from swe_argo.steps.reports.training.weights_and_biases import log_steps
from swe_argo.steps.reports.training.write import write_training_page
from swe_argo.steps.settings import settings
from swe_argo.steps.store import Store
from swe_argo.steps.store.trainings import is_training, training_of_run

log = logging.getLogger(__name__)


def publish_training(store: Store, name: str) -> str:
    """Write the page and ``metrics.jsonl`` of a training; send new figures to W&B if it is configured.

    Returns a message if the page or W&B failed, which does not end a training; else "". Raises ConfigError if there is
    no such training, InfraError if the store fails.
    """
    try:
        training = write_training_page(store, name)
    except StepError:
        raise
    except Exception as error:
        log.exception("cannot write the page of training %s", name)
        return f"cannot write the page of training {name}: {error!r}"
    return log_steps(store, training, settings())


def publish_training_of(store: Store, run_id: str) -> str:
    """Publish the training that the run measured, if any. Raises InfraError if the store fails."""
    name = training_of_run(run_id, measured=True)
    return publish_training(store, name) if name is not None and is_training(store, name) else ""
