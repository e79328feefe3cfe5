"""Progress of running units on the cluster, read from the end of their pods' logs."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from swe_argo.steps.contracts.unit_progress import UnitProgress, parse_progress
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.run_status import ShardView

MOST = 8
"""Maximum number of pods whose logs are read per round: each is a request."""


def read_progress(engine: Engine, shards: Iterable[ShardView]) -> list[UnitProgress]:
    """Return the progress of the first running units, by shard, as far as their logs are readable and contain it."""
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
