"""The sandbox tools and snapshots of the test server of AGS."""

from __future__ import annotations

import re
from typing import Any

from tests.steps.sandbox.envd.server import Machines

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Refused(Exception):  # noqa: N818
    """Raised to answer with Error{Code, Message}."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code)
        self.code = code
        self.message = message


def require(holds: bool, code: str, message: str) -> None:
    if not holds:
        raise Refused(code, message)


def seconds_of(text: str) -> float:
    """Return the seconds of a time such as 5m, 300s or 1h."""
    match = re.fullmatch(r"([0-9]+)([smh])", text)
    if match is None:
        raise Refused("InvalidParameterValue.Timeout", f"Timeout {text} is malformed.")
    return float(match[1]) * _UNITS[match[2]]


def page_of(items: list[dict[str, Any]], body: dict[str, Any], key: str) -> dict[str, Any]:
    offset, limit = body.get("Offset", 0), body.get("Limit", 20)
    require(1 <= limit <= 100, "InvalidParameter.Limit", "Limit is out of range.")
    return {key: items[offset : offset + limit], "TotalCount": len(items)}


class Tools:
    """Sandbox tools. One is CREATING for ``looks_until_active`` listings, then ACTIVE, or FAILED if in ``failing``."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, Any]] = {}
        self.creates: list[dict[str, Any]] = []
        self.looks_until_active = 0
        self.failing: set[str] = set()
        self._looks: dict[str, int] = {}
        self._by_token: dict[str, str] = {}

    def CreateSandboxTool(self, body: dict[str, Any]) -> dict[str, Any]:
        name = body.get("ToolName", "")
        require(re.fullmatch(r"[A-Za-z0-9_-]{1,50}", name) is not None, "InvalidParameter.Name", f"Bad name {name}.")
        require(len(body.get("Description", "")) <= 200, "InvalidParameter.Description", "Too long.")
        modes = ("PUBLIC", "VPC", "SANDBOX")
        mode = (body.get("NetworkConfiguration") or {}).get("NetworkMode")
        require(mode in modes, "InvalidParameterValue", f"NetworkMode {mode} is none of {modes}.")
        self.creates.append(body)
        token = body.get("ClientToken", "")
        if token in self._by_token:
            return {"ToolId": self._by_token[token]}
        if any(tool["ToolName"] == name for tool in self.all.values()):
            raise Refused("ResourceInUse.SandboxTool", f"The tool {name} exists.")
        number = f"sdt-{len(self.all):08x}"
        configuration = body.get("CustomConfiguration") or {}
        context = {"Privileged": True, **(configuration.get("SecurityContext") or {})}
        self.all[number] = {
            "ToolId": number,
            "ToolName": name,
            "ToolType": body["ToolType"],
            "NetworkConfiguration": body["NetworkConfiguration"],
            "Tags": body.get("Tags", []),
            "CustomConfiguration": {**configuration, "SecurityContext": context},
            "StorageMounts": body.get("StorageMounts", []),
            "RoleArn": body.get("RoleArn", ""),
        }
        self._looks[number] = self.looks_until_active
        if token:
            self._by_token[token] = number
        return {"ToolId": number}

    def DescribeSandboxToolList(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = body.get("ToolIds")
        tools = [tool for number, tool in self.all.items() if not ids or number in ids]
        listing = page_of([{**tool, "Status": self._status(tool)} for tool in tools], body, "SandboxToolSet")
        for tool in tools:
            self._looks[tool["ToolId"]] -= 1
        return listing

    def find_tool(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the tool that a start names."""
        for tool in self.all.values():
            if body.get("ToolId") == tool["ToolId"] or body.get("ToolName") == tool["ToolName"]:
                status = self._status(tool)
                require(status == "ACTIVE", "ResourceUnavailable.SandboxTool", f"The tool is {status}.")
                return tool
        raise Refused("ResourceNotFound.SandboxTool", f"The tool {body.get('ToolName')} does not exist.")

    def _status(self, tool: dict[str, Any]) -> str:
        if tool["ToolName"] in self.failing:
            return "FAILED"
        return "CREATING" if self._looks[tool["ToolId"]] > 0 else "ACTIVE"


class SnapshotPlane:
    """Sandbox snapshots. ``snapshot_ids``: ids of all ever taken. ``is_off``: the account has no snapshots."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.snapshot_ids: list[str] = []
        self.is_off = False
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
        """Raise Refused if there is no snapshot of this id."""
        is_active = self._all.get(number, {}).get("Status") == "ACTIVE"
        require(is_active, "ResourceNotFound.SandboxSnapshot", f"The snapshot {number} does not exist.")
