"""A server that speaks E2B's wire protocol to the real SDK, with the limits of its plans.

https://e2b.dev/docs/sandbox/rate-limits
"""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from tests.steps.sandbox.e2b.template_builds import Faults, TemplatePlane
from tests.steps.sandbox.envd.server import DropConnection, EnvdServer, Machines, RemoteMachine, answer, failure


class CreationLimit:
    """A plan's limit of creations in any second. ``refusals``: the number of refused creations."""

    def __init__(self, per_second: int = 1000) -> None:
        self._arrivals: deque[float] = deque(maxlen=per_second)
        self._lock = threading.Lock()
        self.refusals = 0

    def takes(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if len(self._arrivals) == self._arrivals.maxlen and now - self._arrivals[0] < 1.0:
                self.refusals += 1
                return False
            self._arrivals.append(now)
            return True


API_KEY = "e2b_" + "0" * 40
LONGEST_LIFE_S = 3600
_RULES = Map(
    [
        Rule("/v2/sandboxes", methods=["POST"], endpoint="create"),
        Rule("/sandboxes", methods=["POST"], endpoint="create_old"),
        Rule("/v2/sandboxes", methods=["GET"], endpoint="list"),
        Rule("/sandboxes", methods=["GET"], endpoint="list_old"),
        Rule("/sandboxes/<number>", methods=["GET"], endpoint="get"),
        Rule("/sandboxes/<number>", methods=["DELETE"], endpoint="delete"),
        Rule("/v2/sandboxes/<number>/connect", methods=["POST"], endpoint="connect"),
        Rule("/sandboxes/<number>/snapshots", methods=["POST"], endpoint="snapshot"),
        Rule("/templates/aliases/<name>", methods=["GET"], endpoint="alias"),
        Rule("/templates", methods=["GET"], endpoint="templates_list"),
        Rule("/v3/templates", methods=["POST"], endpoint="templates_request"),
        Rule("/v2/templates/<template>/builds/<build>", methods=["POST"], endpoint="templates_begin"),
        Rule("/templates/<template>/builds/<build>/status", methods=["GET"], endpoint="templates_status"),
        Rule("/templates/<template>/files/<digest>", methods=["GET"], endpoint="templates_link"),
        Rule("/templates/<path:name>", methods=["DELETE"], endpoint="delete_template"),
        Rule("/uploads/<digest>", methods=["PUT"], endpoint="templates_upload"),
    ]
)


class ControlPlane:
    """The REST API. ``creates``: the bodies of create requests; ``requests``: method and path of every request.

    ``quota``: maximum of running sandboxes.
    """

    def __init__(self, machines: Machines, faults: Faults) -> None:
        self.machines = machines
        self.faults = faults
        self.creation_limit = CreationLimit()
        self.quota, self.refused_for_quota = 1000, 0
        self.creates: list[dict[str, Any]] = []
        self.old_creates = 0
        self.templates = TemplatePlane(machines, faults)
        self.snapshots: list[str] = []
        self.requests: list[str] = []
        self._by_key: dict[str, RemoteMachine] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Response:
        try:
            endpoint, values = _RULES.bind_to_environ(request.environ).match()
        except HTTPException:
            return failure(404, "not found")
        self.requests.append(f"{request.method} {request.path}")
        if endpoint == "templates_upload":  # needs no key
            return self.templates.upload(request, **values)
        if request.headers.get("X-API-Key") != API_KEY:
            return failure(401, "Invalid API key")

        place: Any = self.templates if endpoint.startswith("templates") else self
        return getattr(place, f"_{endpoint}")(request, **values)  # type: ignore[no-any-return]

    def _create(self, request: Request) -> Response:
        if self.faults.only_old_routes:
            return failure(404, "not found")
        return self._make(request, request.headers.get("Idempotency-Key"))

    def _create_old(self, request: Request) -> Response:
        self.old_creates += 1
        return self._make(request, key=None)

    def _make(self, request: Request, key: str | None) -> Response:
        body = request.get_json()
        if "templateID" not in body:
            return failure(400, "templateID is missing")
        with self._lock:
            self.creates.append(body)
        if refused := self._refuse(body):
            return refused
        machine = self._once(key, body)
        if self.faults.takes("lost_create_answers"):
            raise DropConnection
        return answer(handover(machine), 201)

    def _refuse(self, body: dict[str, Any]) -> Response | None:
        """Return the refusal of a create request, or None."""
        if status := self.faults.next_create_status():
            refused = failure(status, "not now")
            refused.headers.update(self.faults.refusal_headers)
            return refused
        if not self.creation_limit.takes():
            return failure(429, "too many requests")
        if len(self.machines.list_all()) >= self.quota:
            self.refused_for_quota += 1
            return failure(429, f"you have reached the maximum number of concurrent E2B sandboxes ({self.quota})")
        if body["templateID"] not in self.machines.templates:
            return failure(404, f"template '{body['templateID']}' not found")
        if body["timeout"] > LONGEST_LIFE_S:
            return failure(400, f"timeout cannot be greater than {LONGEST_LIFE_S // 3600} hours")
        return None

    def _connect(self, request: Request, number: str) -> Response:
        machine = self.machines.find(number)
        return answer(handover(machine)) if machine else failure(404, f"sandbox {number} not found")

    def _once(self, key: str | None, body: dict[str, Any]) -> RemoteMachine:
        """Return the machine of an idempotency key, or a new one."""
        with self._lock:
            if key and (machine := self._by_key.get(key)) and self.machines.find(machine.number):
                return machine

            machine = self.machines.create(
                body["templateID"],
                body["timeout"],
                body.get("metadata") or {},
                network=body.get("allow_internet_access", True),
            )
            if key:
                self._by_key[key] = machine
            return machine

    def _list(self, request: Request) -> Response:
        return failure(404, "not found") if self.faults.only_old_routes else self._list_old(request)

    def _list_old(self, request: Request) -> Response:
        filters = urllib.parse.parse_qsl(request.args.get("metadata", ""))
        pairs = [(urllib.parse.unquote(key), urllib.parse.unquote(value)) for key, value in filters]
        return answer(
            [
                listing(machine)
                for machine in self.machines.list_all()
                if all(machine.metadata.get(key) == value for key, value in pairs)
            ]
        )

    def _get(self, request: Request, number: str) -> Response:
        machine = self.machines.find(number)
        return answer(listing(machine)) if machine else failure(404, f"sandbox {number} not found")

    def _delete(self, request: Request, number: str) -> Response:
        return Response(status=204) if self.machines.kill(number) else failure(404, f"sandbox {number} not found")

    def _snapshot(self, request: Request, number: str) -> Response:
        """Take a snapshot; answer with its full name, from which sandboxes start."""
        if self.faults.takes("refused_snapshots"):
            return failure(500, "no snapshot now")
        name = f"team/{request.get_json()['name']}:default"
        if not self.machines.snapshot(number, name):
            return failure(404, f"sandbox {number} not found")
        self.snapshots.append(name)
        return answer({"snapshotID": name, "names": [name]}, 201)

    def _delete_template(self, request: Request, name: str) -> Response:
        full = next((template for template in self.machines.templates if template == f"team/{name}:default"), name)
        return self.templates.delete(full)

    def _alias(self, request: Request, name: str) -> Response:
        if name not in self.machines.templates:
            return failure(404, f"template '{name}' not found")
        return answer({"templateID": name, "public": False})


def handover(machine: RemoteMachine) -> dict[str, Any]:
    """Return the answer to a create request."""
    return {
        "templateID": machine.template,
        "sandboxID": machine.number,
        "clientID": "test",
        "envdVersion": "0.6.7",
        "envdAccessToken": machine.token,
    }


def listing(machine: RemoteMachine) -> dict[str, Any]:
    """Return a machine's entry in a listing."""
    return {
        "templateID": machine.template,
        "sandboxID": machine.number,
        "clientID": "test",
        "startedAt": _timestamp(machine.began),
        "endAt": _timestamp(machine.ends),
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "state": "running",
        "envdVersion": "0.6.7",
        "metadata": machine.metadata,
    }


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class E2BServer(EnvdServer):
    """The server. ``line_s``: seconds that a request to a sandbox takes in addition."""

    def __init__(self, images: Path, templates: dict[str, str], host: str = "127.0.0.1", port: int = 0) -> None:
        self.faults = Faults()
        super().__init__(Machines(images, templates), self.faults, host, port)
        self.control = ControlPlane(self.machines, self.faults)
        self.line_s = 0.0

    @property
    def variables(self) -> dict[str, str]:
        return {
            "E2B_API_KEY": API_KEY,
            "E2B_API_URL": self.address,
            "E2B_SANDBOX_URL": self.address,
            "E2B_HTTP_VERSION": "1.1",
        }

    def answer_envd(
        self, request: Request, number: str, environ: dict[str, Any], start_response: Any
    ) -> Iterable[bytes]:
        time.sleep(self.line_s)

        return super().answer_envd(request, number, environ, start_response)

    def answer_control(self, request: Request) -> Response:
        return self.control.answer(request)
