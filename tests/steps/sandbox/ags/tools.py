"""The sandbox tools of the test server."""

from __future__ import annotations

import re
from typing import Any

from tests.steps.sandbox.ags.words import Refused, page_of, require


class Tools:
    """A new tool is CREATING for ``looks_until_active`` listings, then ACTIVE; those in ``failing`` are FAILED."""

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
        """The tool that a start names."""
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
