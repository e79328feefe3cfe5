"""Planning of a round of a training: the spec of a step's rollouts, or of the run that measures its weights."""

from __future__ import annotations

import json

from swe_argo.steps.contracts.chain import IS_DUE, PLAN_ROUND, SPEC
from swe_argo.steps.contracts.training import TrainFile
from swe_argo.steps.entry import Flags, run_program, write_outputs
from swe_argo.steps.planning.submitted_spec import refuse_placeholders
from swe_argo.steps.store import open_store
from swe_argo.steps.store.records import read_record
from swe_argo.steps.training.checkpoints import FIRST, CheckpointLog, await_weights
from swe_argo.steps.training.rounds import plan_measurement, plan_rollouts


def main(flags: Flags) -> str:
    """Plan the round that the flags name, and return it in a few words."""
    store, step = open_store(flags["store"]), flags["step"]
    training = read_record(store, TrainFile, flags["training"])
    plan = plan_measurement if flags["held-out"] else plan_rollouts
    spec = plan(store, training, step)
    if spec:
        refuse_placeholders(spec)
    if spec and flags["served"] and spec.llm.base_url:
        learned = CheckpointLog(store, training.name).read()
        # On a cluster the proxy reads new weights by itself: the run must not start with the old ones.
        await_weights(spec.llm.base_url, training.name, (learned[-1].weights if learned else FIRST).version)
    outputs = {IS_DUE: json.dumps(spec is not None), SPEC: spec.model_dump_json() if spec else ""}
    write_outputs(flags["out"], outputs)
    if spec is None:
        return "nothing is due"
    return f"{spec.run_id}: {len(spec.select.instance_ids)} instances, {spec.attempts} attempts at each"


if __name__ == "__main__":
    run_program(PLAN_ROUND, main)
