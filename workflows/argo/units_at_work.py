"""Units at work on the cluster: how far each has come, by the end of its pod's log."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from swe_argo.steps.contracts.unit_progress import UnitProgress, parse_progress
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.run_status import ShardView

MOST = 8
"""Pods whose logs are read in a round: each is a request."""


def read_progress(engine: Engine, shards: Iterable[ShardView]) -> list[UnitProgress]:
    """Of the first units at work, in the order of their shards; of those that tell it, and whose logs may be read."""
    pods = [pod for each in shards if not each.has_ended for pod in each.pods][:MOST]
    if not pods:
        return []
    with ThreadPoolExecutor(len(pods)) as pool:
        logs = pool.map(lambda pod: engine.log_end(pod.workflow, pod.name), pods)
        found = [_newest(log) for log in logs]
    return [progress for progress in found if progress is not None]


def _newest(log: str) -> UnitProgress | None:
    read = (parse_progress(line) for line in reversed(log.splitlines()))
    return next((progress for progress in read if progress is not None), None)
