"""Shards: parts of a plan's units that engines pass to child Workflows."""

from __future__ import annotations

import json
from typing import ClassVar, Self

from swe_argo.steps.contracts.data import Stage, Unit
from swe_argo.steps.contracts.record import Part, Place, Raw, to_json


class ShardUnit(Part):
    """A unit of a shard: everything that an engine may pass as a parameter."""

    id: str
    attempt: int
    begins: Stage


def shard_name(workflow: str, number: str) -> str:
    """Return the name of a shard's Workflow and of the file with its units; the number alone without a Workflow."""
    return f"{workflow}-s{number}" if workflow else number


class Shard(Raw):
    """A part of the units to do: a JSON list of ShardUnit, in a file named by ``shard_name``."""

    file: ClassVar[str] = "{name}.json"
    place: ClassVar[Place] = Place.SHARDS

    @classmethod
    def of(cls, units: list[Unit]) -> Self:
        """Return the shard of these units."""
        items = [ShardUnit(id=unit.instance_id, attempt=unit.attempt, begins=unit.begins) for unit in units]
        return cls(to_json([item.model_dump(mode="json") for item in items], separators=(",", ":")).encode())

    @property
    def units(self) -> list[ShardUnit]:
        """Return the units of the shard."""
        return [ShardUnit.model_validate(item) for item in json.loads(self.data)]
