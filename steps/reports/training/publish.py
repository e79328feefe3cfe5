"""What people see of a training, whenever something of it changed: its page, its figures, and these at W&B."""

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
    """Write the page and ``metrics.jsonl`` of a training, and send to W&B what it does not have, if it is asked.

    Returns one line where the page could not be drawn or W&B not be told, else nothing: neither ends a training. Raises
    ConfigError where there is no such training, InfraError when the store fails.
    """
    try:
        training = write_training_page(store, name)
    except StepError:
        raise
    except Exception as error:
        log.exception("the page of %s", name)
        return f"the page of {name} could not be written: {error!r}"
    return log_steps(store, training, settings())


def publish_training_of(store: Store, run_id: str) -> str:
    """The same of the training that a run was a measurement of; nothing where it was of none. Raises InfraError."""
    name = training_of_run(run_id, measured=True)
    return publish_training(store, name) if name is not None and is_training(store, name) else ""
