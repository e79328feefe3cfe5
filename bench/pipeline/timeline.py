"""When each unit of a run began and ended, from the nodes of its shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.pipeline.watching import moment

Workflow = dict[str, Any]


@dataclass(frozen=True)
class Timed:
    """A unit: seconds since the epoch, whole ones. It begins with its first pod: before, it may wait for its place."""

    instance: str
    shard: str
    begin: float
    end: float
    pods: int
    solve_end: float
    grade_begin: float
    grade_end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def units(shards: Iterable[Workflow]) -> list[Timed]:
    """All units that ended well, by the time of their begin."""
    timed = []
    for shard in shards:
        nodes = shard["status"]["nodes"].values()
        steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for node in nodes:
            if node["type"] == "Pod" and node["templateName"] in ("solve", "grade"):
                steps[node["boundaryID"]].append(node)
        for node in nodes:
            if node["templateName"] != "unit" or node["type"] != "DAG" or node["phase"] != "Succeeded":
                continue
            mine = sorted(steps[node["id"]], key=lambda item: item["startedAt"])
            solve = max((item for item in mine if item["templateName"] == "solve"), key=lambda item: item["finishedAt"])
            grades = [item for item in mine if item["templateName"] == "grade"]
            parameters = {item["name"]: item["value"] for item in node["inputs"]["parameters"]}
            timed.append(
                Timed(
                    instance=parameters["id"],
                    shard=shard["metadata"]["name"],
                    begin=moment(mine[0]["startedAt"]),
                    end=moment(node["finishedAt"]),
                    pods=len(mine),
                    solve_end=moment(solve["finishedAt"]),
                    grade_begin=moment(grades[0]["startedAt"]),
                    grade_end=moment(grades[-1]["finishedAt"]),
                )
            )
    return sorted(timed, key=lambda item: (item.begin, item.instance))
