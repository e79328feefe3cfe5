"""Failures of units that wrote none themselves, derived from Argo's nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from swe_argo.steps.argo.failure_reasons import Reason, failure_reason, of_workflow, was_stopped
from swe_argo.steps.argo.nodes import UnitName, has_begun, nodes, parameter, pod_name, pods, template, unit
from swe_argo.steps.contracts.chain import GRADE, SOLVE
from swe_argo.steps.contracts.data import Stage
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.shard import shard_name
from swe_argo.steps.contracts.workflow_marks import FAILED, SHARD
from swe_argo.steps.errors import one_line
from swe_argo.steps.kube.requests import Plain, moment

LIST, CHILD = "list", "child"
"""Steps of the engine's own: reading the units of a shard; making a shard's Workflow and waiting for it."""


@dataclass(frozen=True)
class LostAttempt:
    """A try that wrote no failure, with the name under which its failure is stored."""

    unit: UnitName
    name: str
    failure: Failure


@dataclass(frozen=True)
class FailedShard:
    """A shard that never reached its units, and the reason."""

    shard: str
    """The shard's number, five digits."""
    workflow: str
    """Name of its Workflow, which may not exist."""
    name: str
    """Name of the pod or Workflow that failed."""
    reason: Reason
    node: Plain

    def failure(self, of: UnitName, begins: Stage) -> Failure:
        """Return the shard's failure for one of its units, at the step that would have come first."""
        why = replace(self.reason, words=f"its shard never came to it: {self.reason.words}")
        return _failure(of, begins.value, self.node, why).model_copy(update={"seconds": 0.0})


def unit_failure(node: Plain) -> Failure | None:
    """Return the failure of a try; None if its pod did not fail, or never started because of a stop."""
    of, why = unit(node), failure_reason(node)
    return _failure(of, template(node), node, why) if of and why else None


def find_lost(workflow: Plain) -> Iterator[LostAttempt]:
    """Yield the failed tries of a shard's units. Raises InfraError if the Workflow does not hold its nodes."""
    for node in pods(workflow):
        of = unit(node)
        if of and template(node) in (SOLVE.name, GRADE.name) and (recorded := unit_failure(node)):
            yield LostAttempt(of, pod_name(workflow, node), recorded)


def failed_shard(workflow: Plain) -> FailedShard | None:
    """Return why a shard's Workflow never reached its units; None if it did, or was stopped before.

    Raises InfraError if the Workflow does not hold its nodes.
    """
    status, name = workflow.get("status") or {}, str(workflow["metadata"]["name"])
    shard = str((workflow["metadata"].get("labels") or {}).get(SHARD) or "")
    all_nodes = list(nodes(workflow).values())
    if any(unit(node) for node in all_nodes):
        return None
    last = max((node for node in pods(workflow) if template(node) == LIST), key=_began, default=None)
    if last and last.get("phase") in FAILED:
        return _failed_shard(shard, name, pod_name(workflow, last), last, failure_reason(last))
    # Refused as a whole (a missing template, an invalid list): use its own message, or that of its first node.
    messages = (str(each.get("message") or "") for each in (status, *all_nodes))
    whole = {**status, "message": next(filter(None, messages), "")}
    return _failed_shard(shard, name, name, whole, of_workflow(name, whole))


ENDED = (FailureClass.STEP_KILLED, FailureClass.STOPPED)


def find_unmade_shards(workflow: Plain) -> list[FailedShard]:
    """Return the shards whose Workflow could not be made or followed; some Workflows may exist all the same.

    Raises InfraError if the Workflow does not hold its nodes.
    """
    told_to_stop = bool((workflow.get("spec") or {}).get("shutdown"))
    last: dict[str, Plain] = {}
    for node in sorted((node for node in pods(workflow) if template(node) == CHILD), key=_began):
        last[parameter(node, "number")] = node
    run = str(workflow["metadata"]["name"])
    shards = (
        _failed_shard(number, shard_name(run, number), pod_name(workflow, node), node, failure_reason(node))
        for number, node in last.items()
    )
    # A pod that waits for a shard gets the run's stop signal, and reports it itself.
    return [each for each in shards if each and not (told_to_stop and each.reason.failure_class in ENDED)]


def _began(node: Plain) -> str:
    return str(node.get("startedAt") or "")


def _failed_shard(shard: str, workflow: str, name: str, node: Plain, why: Reason | None) -> FailedShard | None:
    """Return the failed shard, or None if the run was stopped, even if its pods had started."""
    return FailedShard(shard, workflow, name, why, node) if why and shard and not was_stopped(node) else None


def _failure(of: UnitName, step: str, node: Plain, why: Reason) -> Failure:
    began, finished = moment(node.get("startedAt")), moment(node.get("finishedAt"))
    finished = finished or time.time()
    return Failure(
        step=step,
        instance_id=of.instance_id,
        attempt=of.attempt,
        failure_class=why.failure_class,
        reason=one_line(why.words, 500),
        detail=f"Argo Workflows: {node.get('phase')}: {node.get('message') or 'no message'}",
        exit_code=why.exit_code,
        occurred_at=datetime.fromtimestamp(finished, UTC).isoformat(timespec="seconds"),
        # From Argo's start of the node, so the time waiting for a machine counts.
        seconds=round(max(0.0, finished - began), 3) if began and has_begun(node) else 0.0,
    )
