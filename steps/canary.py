"""A run's canary, graded -> whether its machines are to be believed; a run that stops there is ended here."""

from __future__ import annotations

from swe_argo.steps.contracts.chain import CANARY
from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.entry import Flags, run_program
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.canary import describe_canary, read_canary
from swe_argo.steps.store import open_store
from swe_argo.steps.store.runs import record_of


def main(flags: Flags) -> str:
    """Returns what it says in a sentence. Raises ConfigError where it failed and the spec says that the run stops."""
    store = open_store(flags["store"])
    result = read_canary(store, record_of(store, Plan, flags["run"]))
    if result is None:
        return "no canary"
    sentence = describe_canary(result)
    if result.failed and record_of(store, RunFile, flags["run"]).spec.stop_on_canary:
        raise ConfigError(sentence)
    return sentence


if __name__ == "__main__":
    run_program(CANARY, main)
