"""A server that speaks the wire protocols of AGS to the real SDKs: Tencent's JSON, with the service's checks."""

from __future__ import annotations

import re
import threading
import time
import uuid
import warnings
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tencentcloud.ags.v20250920 import models
from werkzeug.wrappers import Request, Response

from swe_argo.steps.contracts.sandbox_spec import AGSSpec
from swe_argo.steps.sandbox.ags.tools import ServiceImage, configuration, tool_name
from tests.steps.sandbox.envd.server import DropConnection, EnvdServer, LineFaults, Machines, RemoteMachine, answer

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


@dataclass
class Faults(LineFaults):
    """Faults that a test switches on.

    ``codes``: action -> error codes of its next requests. ``statuses``: HTTP statuses of the next requests, whatever
    the action. ``lost_start_answers``: sandboxes to create without an answer. ``failing_starts``: sandboxes that become
    FAILED. ``looks_until_running``: listings in which a new sandbox is STARTING.
    """

    codes: dict[str, deque[str]] = field(default_factory=dict)
    statuses: deque[int] = field(default_factory=deque)
    lost_start_answers: int = 0
    failing_starts: int = 0
    looks_until_running: int = 0
    token_life_s: float = 3600.0

    def next_code(self, action: str) -> str | None:
        with self.lock:
            codes = self.codes.get(action)
            return codes.popleft() if codes else None

    def next_status(self) -> int | None:
        with self.lock:
            return self.statuses.popleft() if self.statuses else None


SECRET_ID = "AKID" + "z8" * 16
SECRET_KEY = "gu5t9xGARNpq86cd98joQYCN3" + "Cozk1qA"
LONGEST_LIFE_S = 3600
_WARNINGS = threading.Lock()


@dataclass
class Instance:
    machine: RemoteMachine
    tool: dict[str, Any]
    body: dict[str, Any]
    looks_left: int
    is_failing: bool = False
    privileged: bool = False
    tokens: list[str] = field(default_factory=list)


class ControlPlane:
    """The API. ``quota``: maximum of running sandboxes. ``start_tokens``: of every requested start."""

    def __init__(self, machines: Machines, faults: Faults, quota: int = 10) -> None:
        self.machines = machines
        self.faults = faults
        self.quota = quota
        self.tools = Tools()
        self.snapshots = SnapshotPlane(machines)
        self.actions: list[str] = []
        self.starts: list[dict[str, Any]] = []
        self.start_tokens: list[str | None] = []

        self.refused_for_quota = 0
        self.api_key: str | None = None
        self._instances: dict[str, Instance] = {}
        self._by_token: dict[str, Instance] = {}
        self._lock = threading.RLock()

    def answer(self, request: Request) -> Response:
        action = request.headers.get("X-TC-Action", "")
        if status := self.faults.next_status():
            return Response("<html>not now</html>", status=status, mimetype="text/html")
        try:
            self._admit(request, action)
            body = request.get_json()
            _check_parameters(action, body)
            planes = ((self, f"_{action}"), (self.tools, action), (self.snapshots, action))
            handler = next((getattr(plane, name) for plane, name in planes if hasattr(plane, name)), None)
            require(handler is not None, "InvalidAction", f"The action {action} does not exist.")
            assert handler is not None
            return _respond(handler(body))
        except Refused as error:
            return _respond({"Error": {"Code": error.code, "Message": error.message}})

    def _admit(self, request: Request, action: str) -> None:
        with self._lock:
            self.actions.append(action)
            if action == "StartSandboxInstance":
                self.start_tokens.append(request.get_json().get("ClientToken"))
        is_known = f"Credential={SECRET_ID}/" in request.headers.get("Authorization", "")
        require(is_known, "AuthFailure.SecretIdNotFound", "The SecretId is not found.")
        require(request.headers.get("X-TC-Version") == "2025-09-20", "NoSuchVersion", "No such version.")
        require(bool(request.headers.get("X-TC-Region")), "MissingParameter", "The region is missing.")
        if code := self.faults.next_code(action):
            raise Refused(code, "injected")

    def _StartSandboxInstance(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.starts.append(body)
            instance = self._started(body)
        if self.faults.takes("lost_start_answers"):
            raise DropConnection
        return {"Instance": self._listing(instance)}

    def _started(self, body: dict[str, Any]) -> Instance:
        token = body.get("ClientToken")
        require(token is None or len(token) <= 64, "InvalidParameterValue", "ClientToken is too long.")
        if token in self._by_token:
            return self._by_token[token]
        tool = self.tools.find_tool(body)
        configuration = {**tool.get("CustomConfiguration", {}), **body.get("CustomConfiguration", {})}
        life_s = seconds_of(body.get("Timeout", "5m"))
        require(30 <= life_s <= LONGEST_LIFE_S, "InvalidParameterValue.Timeout", "Timeout is out of range.")
        image = str(configuration.get("Image"))
        require(image in self.machines.templates, "ResourceNotFound.Image", f"The image {image} does not exist.")
        if snapshot := body.get("SnapshotId"):
            self.snapshots.require(snapshot)
        if len(self.machines.list_all()) >= self.quota:
            self.refused_for_quota += 1
            raise Refused("LimitExceeded.SandboxInstance", f"At most {self.quota} sandboxes may run.")
        machine = self.machines.create(
            snapshot or image,
            life_s,
            {entry["Name"]: entry["Value"] for entry in body.get("Metadata", [])},
            network=tool["NetworkConfiguration"]["NetworkMode"] != "SANDBOX",
        )
        if self.api_key:
            machine.granted[self.api_key] = float("inf")
        instance = Instance(machine, tool, body, self.faults.looks_until_running)
        instance.is_failing = self.faults.takes("failing_starts")
        # the documented default is True
        instance.privileged = (configuration.get("SecurityContext") or {}).get("Privileged", True)
        self._instances[machine.number] = instance
        if token:
            self._by_token[token] = instance
        return instance

    def _DescribeSandboxInstanceList(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = body.get("InstanceIds")
        with self._lock:
            instances = [item for number, item in self._instances.items() if not ids or number in ids]
            for instance in instances if ids else []:
                instance.looks_left -= 1
            return page_of([self._listing(item) for item in instances], body, "InstanceSet")

    def _StopSandboxInstance(self, body: dict[str, Any]) -> dict[str, Any]:
        require(body["InstanceId"] in self._instances, "ResourceNotFound.SandboxInstance", "No such sandbox.")
        if not self.machines.kill(body["InstanceId"]):
            raise Refused("UnsupportedOperation.SandboxInstance", "The sandbox does not run.")
        return {}

    def _AcquireSandboxInstanceToken(self, body: dict[str, Any]) -> dict[str, Any]:
        machine = self.machines.find(body["InstanceId"])
        if machine is None:
            raise Refused("ResourceNotFound.SandboxInstance", "No such sandbox.")
        token, ends = uuid.uuid4().hex, time.time() + self.faults.token_life_s
        machine.granted[token] = ends
        self._instances[machine.number].tokens.append(token)
        return {"Token": token, "ExpiresAt": _timestamp(ends), "TrafficToken": ""}

    def _DescribeQuotaOverview(self, body: dict[str, Any]) -> dict[str, Any]:
        used = len(self.machines.list_all())
        return {
            "AccountQuotaOverview": {
                "Quota": {"SandboxTools": 500, "SandboxInstances": self.quota},
                "Usage": {"SandboxTools": len(self.tools.all), "SandboxInstances": used},
            },
            "QuotaGroupSet": [],
            "TotalCount": 0,
        }

    def instance_of(self, number: str) -> Instance:
        return self._instances[number]

    def _listing(self, instance: Instance) -> dict[str, Any]:
        machine = instance.machine
        runs = self.machines.find(machine.number) is not None
        status = "STARTING" if instance.looks_left > 0 else "RUNNING"
        status = ("FAILED" if instance.is_failing else status) if runs else "STOPPED"
        return {
            "InstanceId": machine.number,
            "ToolId": instance.tool["ToolId"],
            "ToolName": instance.tool["ToolName"],
            "Status": status,
            "TimeoutSeconds": int(machine.timeout_s),
            "ExpiresAt": _timestamp(machine.ends),
            "StopReason": "" if runs else "timeout" if time.time() >= machine.ends else "manual",
            "CreateTime": _timestamp(machine.began),
            "NetworkMode": instance.tool["NetworkConfiguration"]["NetworkMode"],
            "Metadata": [{"Name": key, "Value": value} for key, value in machine.metadata.items()],
            "CustomConfiguration": {"SecurityContext": {"Privileged": instance.privileged}},
        }


def _check_parameters(action: str, body: dict[str, Any]) -> None:
    """Refuse parameters that the SDK's release does not have, at any depth."""
    model = getattr(models, f"{re.sub('[^A-Za-z]', '', action)}Request", None)
    require(model is not None, "InvalidAction", f"The action {action} does not exist.")
    assert model is not None
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model()._deserialize(body)
        except UserWarning as unknown:
            raise Refused("UnknownParameter", str(unknown)) from None


def _respond(body: dict[str, Any]) -> Response:
    return answer({"Response": {**body, "RequestId": str(uuid.uuid4())}})


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class AGSServer(EnvdServer):
    """``images``: the folder of folder images; ``image_names``: the service's image -> the folder image that it is."""

    def __init__(self, images: Path, image_names: dict[str, str], quota: int = 10) -> None:
        self.faults = Faults()
        super().__init__(Machines(images, image_names), self.faults)
        self.control = ControlPlane(self.machines, self.faults, quota)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "TENCENTCLOUD_SECRET_ID": SECRET_ID,
            "TENCENTCLOUD_SECRET_KEY": SECRET_KEY,
            "AGS_REGION": "ap-shanghai",
            "AGS_ENDPOINT": self.address,
            "AGS_SANDBOX_URL": self.address,
            "E2B_HTTP_VERSION": "1.1",
        }

    def add_shared_tools(self) -> None:
        """Create the tools of ``swe-argo ags sync``."""
        for mode in ("SANDBOX", "PUBLIC"):
            self.control.tools.CreateSandboxTool(
                {
                    "ToolName": tool_name(AGSSpec(), "", mode),
                    "ToolType": "custom",
                    "NetworkConfiguration": {"NetworkMode": mode},
                    "CustomConfiguration": configuration(ServiceImage("envd", "personal")),
                }
            )

    def answer_control(self, request: Request) -> Response:
        return self.control.answer(request)
