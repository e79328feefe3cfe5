"""Progress of running units on the cluster, read from the end of their pods' logs."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from swe_argo.steps.contracts.unit_progress import UnitProgress, parse_progress
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.run_status import ShardView

MAX_PODS = 8
"""Maximum number of pods whose logs are read per round: each is a request."""


def read_progress(engine: Engine, shards: Iterable[ShardView]) -> list[UnitProgress]:
    """Return the progress of the first MAX_PODS running units, without those whose logs cannot be read or have none."""
    pods = [pod for shard in shards if not shard.has_ended for pod in shard.step_pods][:MAX_PODS]
    if not pods:
        return []
    with ThreadPoolExecutor(len(pods)) as pool:
        logs = pool.map(lambda pod: engine.log_end(pod.workflow, pod.name), pods)
        reports = [_newest(log) for log in logs]
    return [progress for progress in reports if progress is not None]


def _newest(log: str) -> UnitProgress | None:
    reports = (parse_progress(line) for line in reversed(log.splitlines()))
    return next((progress for progress in reports if progress is not None), None)
