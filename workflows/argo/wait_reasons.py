"""Reasons why a Workflow makes no progress: messages of Argo about pending pods, failed tries and locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from swe_argo.steps.argo.nodes import tries_of
from swe_argo.steps.contracts.workflow_marks import ENDED, FAILED, Phase
from swe_argo.steps.errors import one_line
from swe_argo.workflows.argo.engine import Plain

STARTING = ("", "PodInitializing", "ContainerCreating")
"""Messages of a pod that is starting normally."""
MAX_LENGTH = 200
"""Maximum characters of one reason."""
MAX_NAMES = 3
"""Maximum number of Workflows named as holders of a lock."""
LOCKS = {
    "shards": "one of the chart's limits.shards places",
    "runs": "one of the chart's limits.runs places",
    "units": "one of the chart's limits.units places",
}


def count_waits(workflow: Plain, by_id: dict[str, Plain]) -> Counter[str]:
    """Return the wait reasons of a Workflow and its nodes, with counts; empty if all of its work is in progress."""
    reasons = Counter(_locks(workflow))
    for node in by_id.values():
        kind, phase = node.get("type"), node.get("phase")
        message, step = str(node.get("message") or ""), node.get("templateName")
        if kind == "Pod" and phase == Phase.PENDING and message not in STARTING:
            reasons[f"the pod of {step} waits: {one_line(message, MAX_LENGTH)}"] += 1
        elif kind == "Retry" and phase not in ENDED and (tries := failed_tries(node, by_id)) and tries[-1] != "":
            reasons[f"{step} is retried after {_count_failures(len(tries))}: {one_line(tries[-1], MAX_LENGTH)}"] += 1
    return reasons


def failed_tries(top: Plain, by_id: dict[str, Plain]) -> list[str]:
    """Return the messages of the node's tries if the last one failed, else an empty list."""
    tries = tries_of(top, by_id)
    if not tries or tries[-1].get("phase") not in FAILED:
        return []
    return [step_message(str(attempt.get("message") or "no reason given")) for attempt in tries]


def step_message(message: str) -> str:
    """Return the step's own error message, without Argo's prefix of container and exit code."""
    head, separator, own_message = message.partition("): ")
    return own_message if separator and "exit code" in head else message


def _count_failures(number: int) -> str:
    return "a failure" if number == 1 else f"{number} failures"


def _locks(workflow: Plain) -> Iterator[str]:
    """Yield the locks that a pending Workflow waits for; the locks of single units do not count."""
    status = workflow.get("status") or {}
    if status.get("phase") not in (None, "", Phase.PENDING):
        return
    locks = status.get("synchronization") or {}
    for wait in (locks.get("semaphore") or {}).get("waiting") or []:
        limit = str(wait.get("semaphore") or "").rpartition("/")[2]
        yield f"waits for {LOCKS.get(limit, limit)}{_format_locks(wait.get('holders') or [])}"
    for wait in (locks.get("mutex") or {}).get("waiting") or []:
        yield f"waits for another Workflow of this run to end{_format_locks([wait.get('holder') or ''])}"


def _format_locks(keys: list[str]) -> str:
    """Return the names of the lock holders. A key is namespace/workflow, followed by a node id for smaller holders."""
    names = list(dict.fromkeys(key.split("/")[1] for key in keys if "/" in key))
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f", held by {', '.join(names[:MAX_NAMES])}{more}"
