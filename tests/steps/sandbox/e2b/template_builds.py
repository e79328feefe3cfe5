"""Template builds at the test server of E2B: requested, built from images of this machine, listed, removed."""

from __future__ import annotations

import shlex
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from werkzeug.wrappers import Request, Response

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, StepError
from swe_argo.steps.sandbox.local.sandbox import LocalSandbox
from tests.steps.sandbox.envd.server import DropConnection, LineFaults, Machines, answer, failure


@dataclass
class Faults(LineFaults):
    """``create_statuses``: HTTP statuses of the next creates, with ``refusal_headers``; they make nothing.

    ``lost_create_answers``: creates that make a sandbox and drop the connection. ``build_seconds``: duration of a
    build. ``unbegun_builds``: builds to request whose start drops the connection. ``builds_at_a_time``: more get 429.
    ``build_statuses``: HTTP statuses of the next requests for a build. ``refused_uploads``: uploads to answer with 500;
    one takes ``upload_seconds``. ``refused_snapshots``: snapshots to fail. ``only_old_routes``: sandboxes are at
    /sandboxes alone, as in e2b 2.50.
    """

    create_statuses: deque[int] = field(default_factory=deque)
    refusal_headers: dict[str, str] = field(default_factory=dict)
    lost_create_answers: int = 0
    build_seconds: float = 0.05
    unbegun_builds: int = 0
    builds_at_a_time: int = 20
    build_statuses: deque[int] = field(default_factory=deque)
    refused_uploads: int = 0
    upload_seconds: float = 0.0
    refused_snapshots: int = 0
    only_old_routes: bool = False

    def next_create_status(self) -> int | None:
        with self.lock:
            return self.create_statuses.popleft() if self.create_statuses else None


_LIFE_S = 120.0


def apply_steps(machines: Machines, image: str, steps: Sequence[dict[str, Any]], files: Mapping[str, bytes]) -> str:
    """Return the folder image after a build's steps. Raises StepError, or KeyError for a file that is not uploaded."""
    box = machines.make_box(image, _LIFE_S, network=False)
    try:
        for step in steps:
            if step["type"] == "COPY":
                _copy(box, step["args"], files[step["filesHash"]])
            else:
                assert step["type"] == "RUN"
                _run(box, step["args"][0])
        return machines.keep_box(box)
    finally:
        machines.destroy_box(box)


def _copy(box: LocalSandbox, args: Sequence[str], archive: bytes) -> None:
    """Copy a file as E2B's builder does: e2b-dev/infra, template/build/commands/copy.go and copy_script.sh."""
    source, target, user, mode = args
    assert (user, mode) == ("root", "")
    box.write("/tmp/layer.tar", archive)
    place = shlex.quote(target)
    _run(box, "mkdir /tmp/layer && tar -xzf /tmp/layer.tar --no-same-owner -C /tmp/layer")
    _run(box, f'mkdir -p "$(dirname {place})" && mv /tmp/layer/{shlex.quote(source)} {place} && rm -rf /tmp/layer*')


def _run(box: LocalSandbox, command: str) -> None:
    ran = box.exec(shlex.join(["bash", "-l", "-c", command]), timeout_s=_LIFE_S, cwd="/", merge=True)
    if ran.exit_code:
        raise InfraError(FailureClass.EXEC, f"failed to run command {command!r}: {ran.stdout.decode()}")


@dataclass
class Build:
    name: str
    cpus: int | None
    memory_mb: int | None
    image: str = ""
    registry: dict[str, str] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    requested_at: float = field(default_factory=time.time)
    ends: float | None = None
    result: str = ""
    why: str = ""
    number: str = field(default_factory=lambda: str(uuid.uuid4()))


class TemplatePlane:
    """``builds``: every requested build, in order; ``most_at_a_time``: the maximum that ran at once.

    ``watched``: the builds whose state a client requested. ``files``: the SDK's hash of a copied file -> the uploaded
    archive; ``uploads``: their number.
    """

    def __init__(self, machines: Machines, faults: Faults) -> None:
        self.builds: list[Build] = []
        self.most_at_a_time = 0
        self.watched: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.uploads = 0
        self._machines, self._faults = machines, faults
        self._lock, self._finishing = threading.Lock(), threading.Lock()

    def newest(self, name: str) -> Build | None:
        return next((build for build in reversed(self.builds) if build.name == name), None)

    def state(self, build: Build) -> str:
        if build.ends is None:
            return "waiting"
        if time.time() < build.ends:
            return "building"
        with self._finishing:
            if not build.result:
                build.result = self._finish(build)
        return build.result

    def _finish(self, build: Build) -> str:
        if not self._is_image(build.image):
            build.why = f"image {build.image} cannot be pulled: manifest unknown"
            return "error"
        try:
            folder_image = (
                apply_steps(self._machines, build.image, build.steps, self.files) if build.steps else build.image
            )
        except (StepError, KeyError) as error:
            build.why = str(error)
            return "error"
        self._machines.templates[build.name] = folder_image
        return "ready"

    def _is_image(self, image: str) -> bool:
        return (self._machines.images / image.replace("/", "__")).is_dir()

    def _templates_request(self, request: Request) -> Response:
        if self._faults.build_statuses:
            return failure(self._faults.build_statuses.popleft(), "not now")
        body = request.get_json()
        with self._lock:
            running = sum(self.state(build) == "building" for build in self.builds)
            if running >= self._faults.builds_at_a_time:
                return failure(429, "too many builds at a time")
            build = Build(body["name"], body.get("cpuCount"), body.get("memoryMB"))
            self.builds.append(build)
        names = {"aliases": [build.name], "names": [build.name], "tags": [], "public": False}
        return answer({"templateID": build.name, "buildID": build.number, **names}, 202)

    def _templates_begin(self, request: Request, template: str, build: str) -> Response:
        if self._faults.takes("unbegun_builds"):
            raise DropConnection
        body, new_build = request.get_json(), self._numbered(build)
        new_build.image, new_build.registry = body["fromImage"], body.get("fromImageRegistry")
        new_build.steps = body.get("steps") or []
        new_build.ends = time.time() + self._faults.build_seconds
        running = sum(self.state(known_build) == "building" for known_build in self.builds)
        self.most_at_a_time = max(self.most_at_a_time, running)
        return Response(status=202)

    def _templates_status(self, request: Request, template: str, build: str) -> Response:
        current = self._numbered(build)
        state = self.state(current)
        self.watched.add(build)
        body: dict[str, Any] = {"templateID": template, "buildID": build, "status": state, "logs": [], "logEntries": []}
        if state == "error":
            body["reason"] = {"message": current.why}
        return answer(body)

    def _templates_link(self, request: Request, template: str, digest: str) -> Response:
        if not self.newest(template):
            return failure(404, "no such template")
        return answer({"present": digest in self.files, "url": f"{request.host_url}uploads/{digest}"}, 201)

    def upload(self, request: Request, digest: str) -> Response:
        """Accept an upload to an address of ``_templates_link``; like S3, refuse one without a length."""
        data = request.get_data()
        time.sleep(self._faults.upload_seconds)
        if self._faults.takes("refused_uploads"):
            return failure(500, "not now")
        if request.content_length != len(data):
            return failure(411, "length required")
        self.uploads += 1
        self.files[digest] = data
        return Response(status=200)

    def _templates_list(self, request: Request) -> Response:
        states = {build.name: self.state(build) for build in self.builds}
        names = {**dict.fromkeys(self._machines.templates, "ready"), **states}
        return answer([self._listing(name, state) for name, state in names.items()])

    def _listing(self, name: str, state: str) -> dict[str, Any]:
        build = self.newest(name)
        moment = datetime.fromtimestamp(build.requested_at if build else time.time() - 3600, UTC).isoformat()
        return {
            "templateID": name,
            "buildID": build.number if build else "",
            "cpuCount": (build and build.cpus) or 2,
            "memoryMB": (build and build.memory_mb) or 512,
            "aliases": [name],
            "names": [f"team/{name}"],
            "createdAt": moment,
            "updatedAt": moment,
            "lastSpawnedAt": None,
            "buildStatus": state,
        }

    def delete(self, template: str) -> Response:
        is_known = template in self._machines.templates or self.newest(template)
        self._machines.templates.pop(template, None)
        self.builds = [build for build in self.builds if build.name != template]
        return Response(status=204) if is_known else failure(404, "no such template")

    def _numbered(self, number: str) -> Build:
        return next(build for build in self.builds if build.number == number)
