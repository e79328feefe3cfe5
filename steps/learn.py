"""The learn step: a step's rollouts -> new weights for the proxy, a line of checkpoints.jsonl, and figures."""

from __future__ import annotations

import logging

from swe_argo.steps.contracts.chain import LEARN, PAGE
from swe_argo.steps.contracts.training import TrainFile
from swe_argo.steps.entry import Flags, run_threaded_program, set_up_logging, write_outputs
from swe_argo.steps.reports.training.page import training_page_key
from swe_argo.steps.reports.training.publish import publish_training
from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from swe_argo.steps.store.records import read_record

log = logging.getLogger(__name__)


def main(flags: Flags) -> str:
    """Learn from the rollouts of a step, write the training's page, and return the result in a few words."""
    set_up_logging()
    from swe_argo.steps.training.learner import Learner

    own_settings, store = settings(), open_store(flags["store"])
    training = read_record(store, TrainFile, flags["training"])
    key = own_settings.require_tinker_key()
    learner = Learner(store, training, api_key=key, base_url=own_settings.tinker_base_url)
    try:
        checkpoint = learner.learn(flags["step"])
    finally:
        learner.close()
    if note := publish_training(store, training.name):
        log.warning(note)
    if flags["out"]:
        write_outputs(flags["out"], {PAGE: store.get(training_page_key(training.name))})
    return f"learnt from {checkpoint.rollouts} rollouts" if checkpoint.rollouts else "nothing to learn"


if __name__ == "__main__":
    run_threaded_program(LEARN, main)
