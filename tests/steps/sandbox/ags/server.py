"""A server that speaks the wire protocols of AGS to the real SDKs: Tencent's signed JSON, with the service's checks."""

from __future__ import annotations

import hashlib
import hmac
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
from tests.steps.sandbox.ags.resources import Refused, SnapshotPlane, Tools, page_of, require, seconds_of
from tests.steps.sandbox.envd.server import DropConnection, EnvdServer, LineFaults, Machines, RemoteMachine, answer


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


SERVICE = "ags"
_AUTHORIZATION = re.compile(
    r"TC3-HMAC-SHA256 Credential=(?P<key_id>[^/]+)/(?P<date>[^/]+)/(?P<service>[^/]+)/tc3_request, "
    r"SignedHeaders=(?P<headers>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_SKEW_S = 300


def refusal(request: Request, secret_id: str, secret_key: str) -> tuple[str, str] | None:
    """Return the service's error for a request that this key has not signed, or None.

    The signature is TC3-HMAC-SHA256, as in Tencent's documentation.
    """
    match = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    moment = int(request.headers.get("X-TC-Timestamp", "0"))
    date = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
    if match is None or (match["date"], match["service"]) != (date, SERVICE):
        return "AuthFailure.SignatureFailure", "The Authorization header is malformed."
    if abs(time.time() - moment) > _SKEW_S:
        return "AuthFailure.SignatureExpire", "The signature is expired."
    if match["key_id"] != secret_id:
        return "AuthFailure.SecretIdNotFound", "The SecretId is not found."
    names = match["headers"].split(";")
    is_good = {"content-type", "host"} <= set(names) and hmac.compare_digest(
        _signature(request, names, secret_key, moment, date), match["signature"]
    )
    return None if is_good else ("AuthFailure.SignatureFailure", "The provided credentials could not be validated.")


def _signature(request: Request, names: list[str], secret_key: str, moment: int, date: str) -> str:
    canonical = "\n".join(
        [
            request.method,
            "/",
            request.query_string.decode(),
            *(f"{name}:{request.headers[name].strip().lower()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(request.get_data()).hexdigest(),
        ]
    )
    scope = f"{date}/{SERVICE}/tc3_request"
    text = f"TC3-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"TC3{secret_key}".encode()
    for part in (date, SERVICE, "tc3_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


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
