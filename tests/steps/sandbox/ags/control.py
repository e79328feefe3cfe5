"""The control plane of the test server: Tencent's signed JSON, for the real SDK, with the checks of the service."""

from __future__ import annotations

import re
import threading
import time
import uuid
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tencentcloud.ags.v20250920 import models
from werkzeug.wrappers import Request, Response

from tests.steps.sandbox.ags.faults import Faults
from tests.steps.sandbox.ags.signature import refusal
from tests.steps.sandbox.ags.snapshots import SnapshotPlane
from tests.steps.sandbox.ags.tools import Tools
from tests.steps.sandbox.ags.words import Refused, page_of, require, seconds_of
from tests.steps.sandbox.envd.answers import answer
from tests.steps.sandbox.envd.machines import Machines, RemoteMachine
from tests.steps.sandbox.envd.server import DropConnection

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
    """``quota``: how many sandboxes may run."""

    def __init__(self, machines: Machines, faults: Faults, quota: int = 10) -> None:
        self.machines = machines
        self.faults = faults
        self.quota = quota
        self.tools = Tools()
        self.snapshots = SnapshotPlane(machines)
        self.actions: list[str] = []
        self.starts: list[dict[str, Any]] = []
        self.start_tokens: list[str | None] = []
        """Of every start that was asked for, refused ones too."""
        self.most_at_once = 0
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
        if failure := refusal(request, SECRET_ID, SECRET_KEY):
            raise Refused(*failure)
        require(request.headers.get("X-TC-Version") == "2025-09-20", "NoSuchVersion", "No such version.")
        require(bool(request.headers.get("X-TC-Region")), "MissingParameter", "The region is missing.")
        if code := self.faults.next_code(action):
            raise Refused(code, "injected")

    def _StartSandboxInstance(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.starts.append(body)
            instance = self._started(body)
            self.most_at_once = max(self.most_at_once, len(self.machines.list_all()))
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
        # The documented default is the opposite of what a person expects.
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
        """As the service tells of it."""
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
    """Refuse what the API of the SDK's release does not have, at any depth."""
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
