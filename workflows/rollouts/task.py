"""A row's ids -> what is to be solved, and what it is graded by: read from the store that lies beside the parquet."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import lru_cache

from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.agents import AgentKind
from swe_argo.steps.contracts.data import Answer, Instance, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.twins import ValidatedTwins
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import open_store
from swe_argo.steps.store.runs import record_of
from swe_argo.workflows.rollouts.kept_runs import is_kept_run


@dataclass(frozen=True)
class RolloutTask:
    """One instance as a rollout has it. ``answer`` is for grading alone: it never comes near a sandbox of solving."""

    store: str
    run: RunFile
    instance: Instance
    answer: Answer
    twins: ValidatedTwins | None = None

    def fresh(self) -> RolloutTask:
        """Return the task with draws of its own: one rollout tells nothing of the next."""
        return replace(self, run=self.run.model_copy(update={"draw_key": secrets.token_hex(32)}))

    def keep_twins(self, twins: bytes) -> None:
        """Keep the twins that a grade has validated for all rollouts of the instance."""
        open_store(self.store).put(key(ValidatedTwins, self.run.run_id, self.instance.instance_id), twins)


def read_task(store: str, run_id: str | None, instance_id: str) -> RolloutTask:
    """The task with these ids; without a run id that of the store's one run.

    Raises ConfigError where there is none, InfraError where the store fails.
    """
    run = _run(store, run_id)
    names = {kind: key(kind, run.run_id, instance_id) for kind in (Instance, Answer, ValidatedTwins)}
    contents = open_store(store).get_many(names.values())
    if missing := [name for kind, name in names.items() if name not in contents and kind is not ValidatedTwins]:
        raise ConfigError(f"{store} has no {missing[0]}: export the dataset again", field="extra_info.instance_id")
    instance = Instance.from_bytes(contents[names[Instance]])
    stored = contents.get(names[ValidatedTwins])
    twins = ValidatedTwins.from_bytes(stored) if stored else None
    return RolloutTask(store, run, instance, Answer.from_bytes(contents[names[Answer]]), twins)


def find_exported_run(store: str) -> str:
    """The store's one run, beside those that rollouts were kept as while a training went on.

    Raises ConfigError where it has none, or several.
    """
    names = open_store(store).folders("runs/")
    if not names:
        raise ConfigError(f"{store} has no exported run: swe-argo export --format verl makes one", field="store")
    found = [name for name in names if not is_kept_run(name)] or names
    if len(found) != 1:
        raise ConfigError(f"which run of {store} is meant? It has {', '.join(found[:5])}", field="extra_info.run")
    return found[0]


@lru_cache
def _run(store: str, run_id: str | None) -> RunFile:
    opened = open_store(store)
    run_id = run_id or find_exported_run(store)
    run = record_of(opened, RunFile, run_id)
    if agent_of(run.spec.agent).kind not in (AgentKind.AGENT, AgentKind.GIVEN):
        # An empty patch of a control is graded all the same, and verdicts on references are not examined.
        spec = run.spec.agent
        raise ConfigError(f"a run of {spec.name!r} has no rollouts: export it for another agent", field="agent.name")
    return run
