"""What runs inside of a sandbox of a test server: commands by Connect-RPC, files by HTTP."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.process.process_connect import ProcessSync
from e2b.envd.process.process_pb import ProcessEvent, StartRequest, StartResponse
from protobuf import Oneof
from werkzeug.wrappers import Request, Response

from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.protocol import ExecResult
from tests.steps.sandbox.envd.answers import answer, failure
from tests.steps.sandbox.envd.faults import LineFaults
from tests.steps.sandbox.envd.machines import Machines, RemoteMachine

_FOREVER_S = 10**6


def gone(number: str) -> Response:
    """How E2B's proxy answers for a sandbox that is no more."""
    return answer({"message": f"The sandbox {number} was not found", "code": 502}, 502)


class Processes(ProcessSync):  # type: ignore[misc]
    """``/process.Process/Start`` alone: the SDK needs no more to run a command."""

    def __init__(self, machines: Machines, faults: LineFaults, drop_connection: Callable[[], None]) -> None:
        self._machines = machines
        self._faults = faults
        self._drop_connection = drop_connection
        self._lock = threading.Lock()
        self.started = 0

    def start(
        self, request: StartRequest, ctx: RequestContext[StartRequest, StartResponse], /
    ) -> Iterator[StartResponse]:
        number = ctx.request_headers["E2b-Sandbox-Id"]
        machine = self._machines.find(number)
        process = request.process
        if machine is None or process is None:
            raise ConnectError(Code.NOT_FOUND, "no such sandbox")
        yield _event(Oneof("start", ProcessEvent.StartEvent(pid=1)))
        if self._faults.takes("dropped_before"):
            self._drop_connection()
            return
        with self._lock:
            self.started += 1

        def execute() -> ExecResult:
            command = shlex.join([process.cmd, *process.args])
            return machine.box.exec(command, timeout_s=_FOREVER_S, cwd=process.cwd or "/", env=dict(process.envs))

        def execute_unheard() -> None:
            with suppress(StepError):  # the machine may be ended meanwhile
                execute()

        if self._faults.takes("dropped_during"):
            threading.Thread(target=execute_unheard, daemon=True).start()
            self._drop_connection()
            return
        try:
            result = execute()
        except StepError as error:
            raise ConnectError(Code.UNAVAILABLE, f"The sandbox {number} was not found") from error
        if self._faults.takes("dropped_after"):
            self._drop_connection()
            return
        for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
            if data:
                yield _event(Oneof("data", ProcessEvent.DataEvent(output=Oneof(name, data))))
        code = result.exit_code or 0
        yield _event(Oneof("end", ProcessEvent.EndEvent(exit_code=code, exited=True, status=f"exit status {code}")))


def _event(event: object) -> StartResponse:
    return StartResponse(event=ProcessEvent(event=event))


def answer_files(request: Request, machine: RemoteMachine) -> Response:
    """``GET`` and ``POST /files``."""
    path = request.args["path"]
    try:
        if request.method == "GET":
            return Response(machine.box.read(path), mimetype="application/octet-stream")
        with request.files["file"].stream as upload:
            machine.box.write(path, upload.read())
    except FileNotFoundError:
        return failure(404, f"path {path} does not exist")
    except OSError as error:
        return failure(400, str(error))
    except StepError:
        return gone(machine.number)
    return answer([{"name": path.rpartition("/")[2], "type": "file", "path": path}])
