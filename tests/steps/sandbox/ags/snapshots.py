"""The sandbox snapshots of the test server."""

from __future__ import annotations

from typing import Any

from tests.steps.sandbox.ags.words import Refused, page_of, require
from tests.steps.sandbox.envd.machines import Machines


class SnapshotPlane:
    """``snapshot_ids``: ids of all snapshots ever made."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.snapshot_ids: list[str] = []
        self.is_off = False
        """The account has no part in the preview."""
        self._by_token: dict[str, dict[str, Any]] = {}
        self._all: dict[str, dict[str, Any]] = {}

    def CreateSandboxSnapshot(self, body: dict[str, Any]) -> dict[str, Any]:
        require(not self.is_off, "UnsupportedOperation", "Snapshots are not enabled for this account.")
        token = body["ClientToken"]
        if token in self._by_token:
            return {"Snapshot": self._by_token[token]}
        number = f"snap-{len(self.snapshot_ids):08x}"
        if not self.machines.snapshot(body["InstanceId"], number):
            raise Refused("ResourceNotFound.SandboxInstance", "No such sandbox.")
        self.snapshot_ids.append(number)
        snapshot = {
            "SnapshotId": number,
            "SnapshotName": body["SnapshotName"],
            "SourceInstanceId": body["InstanceId"],
            "MemoryIncluded": body.get("Memory", True),
            "Status": "ACTIVE",
        }
        self._all[number] = self._by_token[token] = snapshot
        return {"Snapshot": snapshot}

    def DescribeSandboxSnapshotList(self, body: dict[str, Any]) -> dict[str, Any]:
        return page_of(list(self._all.values()), body, "SnapshotSet")

    def DeleteSandboxSnapshot(self, body: dict[str, Any]) -> dict[str, Any]:
        self.require(body["SnapshotId"])
        self._all[body["SnapshotId"]]["Status"] = "DELETED"
        del self.machines.templates[body["SnapshotId"]]
        return {}

    def require(self, number: str) -> None:
        """Raises Refused where there is none of this id."""
        is_active = self._all.get(number, {}).get("Status") == "ACTIVE"
        require(is_active, "ResourceNotFound.SandboxSnapshot", f"The snapshot {number} does not exist.")
