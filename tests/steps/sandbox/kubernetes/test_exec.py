"""Commands over a websocket: each way in which the answer can be lost, and which failures are retried."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("kubernetes")

from kubernetes.client import Configuration

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import Cluster, RetryPolicy
from swe_argo.steps.sandbox.kubernetes import exec as module
from swe_argo.steps.sandbox.kubernetes import pod
from swe_argo.steps.sandbox.kubernetes.exec import URL_BYTES, Exec, ExecRefused
from swe_argo.steps.sandbox.kubernetes.pod import KubernetesPod
from swe_argo.steps.sandbox.kubernetes.pods import Pods

SUCCESS: dict[str, object] = {"metadata": {}, "status": "Success"}


class Line:
    """The server's end of a connection whose request was read, speaking v5.channel.k8s.io."""

    def __init__(self, line: socket.socket, head: bytes) -> None:
        self.line = line
        self.head = head.decode()
        self.query = parse_qs(urlsplit(self.head.split(" ", 2)[1]).query)

    def answer(self, status: int, body: dict[str, object] | str, headers: str = "") -> None:
        """Answer without a handshake."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.line.sendall(f"HTTP/1.1 {status} Whatever\r\n{headers}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    def read_body(self) -> None:
        """Read what follows the head: closing a connection with unread data resets it."""
        length = next((line for line in self.head.split("\r\n") if line.lower().startswith("content-length:")), ":0")
        self._exactly(int(length.partition(":")[2]))

    def accept(self) -> None:
        """Complete the handshake."""
        key = next(line for line in self.head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        digest = hashlib.sha1(f"{key.split(': ')[1]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        proof = base64.b64encode(digest).decode()
        self.line.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {proof}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
        )

    def send(self, channel: int, data: bytes, opcode: int = 2) -> None:
        """Send one frame."""
        payload = bytes((channel,)) + data if opcode == 2 else data
        size = len(payload)
        length = bytes((size,)) if size < 126 else struct.pack(">BH", 126, size)
        length = length if size < 1 << 16 else struct.pack(">BQ", 127, size)
        self.line.sendall(bytes((0x80 | opcode,)) + length + payload)

    def end(self, status: dict[str, object] | None = None) -> None:
        """Send the command's status, if any, and close."""
        if status is not None:
            self.send(3, json.dumps(status).encode())
        self.send(0, struct.pack(">H", 1000), opcode=8)

    def read_stdin(self, size: int) -> bytes:
        """Read ``size`` bytes of the client's stdin."""
        data = b""
        while len(data) < size:
            head = self._exactly(2)
            length = head[1] & 0x7F
            if length >= 126:
                length = int.from_bytes(self._exactly(2 if length == 126 else 8), "big")
            mask, masked = self._exactly(4), self._exactly(length)
            plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))
            assert plain[0] == 0
            data += plain[1:]
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := self.line.recv(size - len(data))):
            data += piece
        assert len(data) == size
        return data


Play = Callable[[Line], None]
"""The server's part in one connection."""


@contextmanager
def serving(play: Play) -> Iterator[Cluster]:
    """Yield a cluster whose API server plays its part in each connection, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, play))
        thread.start()
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.getsockname()[1]}"
        configuration.api_key = {"authorization": "Bearer secret"}
        try:
            yield Cluster(configuration, "somewhere", "fake")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: socket.socket, play: Play) -> None:
    with suppress(OSError):  # the listening socket was shut
        while True:
            line, _ = server.accept()
            with line, suppress(ConnectionError):
                line.settimeout(10)
                head = b""
                while not head.endswith(b"\r\n\r\n") and (piece := line.recv(1)):
                    head += piece
                request = Line(line, head)
                request.read_body()
                play(request)


def once(play: Play, script: str = "true", stdin: bytes = b"", wait_s: float = 1.0) -> tuple[int, bytes]:
    with serving(play) as cluster:
        return Exec(cluster, "sb-1").once(script, stdin, wait_s)


def prints(*pieces: bytes, status: dict[str, object] | None = SUCCESS) -> Play:
    """Return the part of a server whose command prints these pieces and ends."""

    def play(line: Line) -> None:
        line.accept()
        for piece in pieces:
            line.send(1, piece)
        line.end(status)

    return play


def failure(message: str, reason: str = "InternalError", **details: object) -> dict[str, object]:
    return {"status": "Failure", "message": message, "reason": reason, "code": 500, **details}


def exited(code: int) -> dict[str, object]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return failure(f"command terminated: exit status {code}", "NonZeroExitCode", details={"causes": causes})


@pytest.mark.parametrize(("status", "code"), [(SUCCESS, 0), (exited(3), 3), (exited(137), 137)])
def test_exec_reads_the_status_channel(status: dict[str, object], code: int) -> None:
    def play(line: Line) -> None:
        line.accept()
        line.send(1, b"one ")
        line.send(2, b"an error of the container runtime")
        line.send(1, b"")
        line.send(1, b"two\xff")
        line.end(status)

    assert once(play) == (code, b"one two\xff")


def test_request_names_pod_and_command() -> None:
    lines: list[Line] = []

    def play(line: Line) -> None:
        lines.append(line)
        prints()(line)

    once(play, "echo 'a b' & é")
    command = ["/bin/sh", "-c", "echo 'a b' & é"]
    assert lines[0].head.startswith("GET /api/v1/namespaces/somewhere/pods/sb-1/exec?")
    assert lines[0].query == {"container": ["sandbox"], "stdout": ["true"], "command": command}
    assert "\r\nauthorization: Bearer secret\r\n" in lines[0].head
    assert "\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n" in lines[0].head


LONG = "x=" + "é" * URL_BYTES
DATA = hashlib.shake_256(b"seed").digest(700_000)


@pytest.mark.parametrize(
    ("script", "stdin", "expected"),
    [(LONG, b"", f"exec 9>&2\n{LONG}\nexit\n".encode()), ("cat", DATA, DATA)],
    ids=["script", "stdin"],
)
def test_long_input_arrives_unchanged(script: str, stdin: bytes, expected: bytes) -> None:
    received = []

    def play(line: Line) -> None:
        assert line.query["stdin"] == ["true"]
        assert len(line.head) < 1000
        line.accept()
        received.append(line.read_stdin(len(expected)))
        line.end(SUCCESS)

    once(play, script, stdin)
    assert received == [expected]


def test_long_output_is_complete() -> None:
    pieces = [DATA[: 1 << 15]] * 800
    assert once(prints(*pieces)) == (0, b"".join(pieces))


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_refused_handshake_is_explained(status: int) -> None:
    body: dict[str, object] = {"kind": "Status", "message": f'pods "sb-1":\n  number {status}', "code": status}
    with pytest.raises(ExecRefused) as caught:
        once(lambda line: line.answer(status, body, "Retry-After: 7\r\n"))
    assert (caught.value.status, caught.value.text) == (status, f'pods "sb-1": number {status}')
    assert caught.value.headers == {"Retry-After": "7"}


def test_proxy_refusal_is_quoted() -> None:
    with pytest.raises(ExecRefused, match="exec refused with 502: <html>bad gateway</html>"):
        once(lambda line: line.answer(502, "<html>bad gateway</html>"))


STARTED = "Internal error occurred: error executing command in container: failed to exec in container: "
OCI = 'OCI runtime exec failed: exec failed: unable to start container process: exec: "/bin/sh": '
POST = "error sending request: Post "


@pytest.mark.parametrize(
    ("text", "by_runtime", "unreached"),
    [
        (f'{STARTED}failed to start exec "e76c": {OCI}stat /bin/sh: no such file or directory', True, False),
        (f"{OCI}permission denied", True, False),
        (f'{STARTED}failed to start exec "e76c": exec format error', True, False),
        ('error executing command in container: container not found ("sandbox")', False, False),
        ('unable to upgrade connection: container not found ("sandbox")', False, False),
        (f'{POST}"https://10.0.0.1:10250/exec/n/p/sandbox": dial tcp: connection refused', False, True),
        ("error dialing backend: dial tcp 10.0.0.1:10250: i/o timeout", False, True),
        ("error dialing backend: proxy error from 127.0.0.1:9345 while dialing 10.0.0.1:10250", False, True),
        ('pods "sb-1" not found', False, False),
    ],
)
def test_late_refusal_tells_runtime_from_node(text: str, by_runtime: bool, unreached: bool) -> None:
    with pytest.raises(ExecRefused) as caught:
        once(prints(status=failure(text, details={"causes": [{"message": text}]})))
    error = caught.value
    assert (error.status, error.text) == (500, text)
    assert (error.is_by_runtime, error.is_kubelet_unreachable) == (by_runtime, unreached)


def reset(line: Line) -> None:
    line.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def after_output(line: Line) -> None:
    line.accept()
    line.send(1, b"half of it")


def within_a_frame(line: Line) -> None:
    line.accept()
    line.line.sendall(b"\x82\x7e\x10\x00\x01only this")


@pytest.mark.parametrize(
    "play",
    [
        reset,
        lambda line: None,
        lambda line: line.line.sendall(b"HTTP/1.1 101 Switching"),
        Line.accept,
        after_output,
        within_a_frame,
        prints(b"all of it", status=None),
        prints(status={"status": "Failure", "reason": "NonZeroExitCode", "details": None}),
    ],
    ids=["reset", "closed", "in handshake", "accepted", "in output", "in frame", "no status", "broken status"],
)
def test_missing_status_is_a_loss(play: Play) -> None:
    with pytest.raises(ConnectionError):
        once(play)


def test_cut_after_status_is_no_loss() -> None:
    def play(line: Line) -> None:
        line.accept()
        line.send(1, b"out")
        line.send(3, b'{"status": "Success"}')

    assert once(play) == (0, b"out")


@pytest.mark.parametrize("accepts", [False, True])
def test_silence_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch, accepts: bool) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.2)
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)
    over = threading.Event()

    def play(line: Line) -> None:
        if accepts:
            after_output(line)
        over.wait()

    with serving(play) as cluster:
        try:
            with pytest.raises(ConnectionError, match=r"timed out|Timeout"):
                Exec(cluster, "sb-1").once("sleep 9", b"", 0.2)
        finally:
            over.set()


# -- an API server that was just started answers before it knows roles and accounts

POD = {
    "metadata": {"name": "sb-1", "uid": "u-1", "resourceVersion": "7"},
    "spec": {"containers": [{"image": "hub.example/x:1"}]},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"restartCount": 0, "name": "sandbox", "state": {"running": {}}, "ready": True}],
    },
}
FORBIDDEN = 'pods "sb-1" is forbidden: User "runner" cannot get resource "pods" in API group "" in the namespace "n"'
NOT_READY = 'pods "sb-1" is forbidden: not yet ready to handle request'
EARLY = {"role": (403, FORBIDDEN), "account": (401, "Unauthorized"), "rules": (403, NOT_READY)}
REQUESTS: dict[str, Callable[[KubernetesPod, Pods], object]] = {
    "exec": lambda pod, _: pod.short_exec("true"),
    "look": lambda pod, _: pod.check(),
    "make": lambda _, pods: pods.make(POD),
    "remove": lambda _, pods: pods.remove("sb-1", "u-1"),
    "watch": lambda _, pods: list(pods.changes(POD, 1)),
}


@contextmanager
def refusing(count: int, refusal: str, rights_s: float) -> Iterator[tuple[KubernetesPod, Pods]]:
    """Yield a pod of a server that refuses its first ``count`` requests and obeys the rest."""
    refused: list[str] = []
    status, message = EARLY[refusal]

    def play(line: Line) -> None:
        if len(refused) < count:
            refused.append(line.head)
            line.answer(status, {"kind": "Status", "message": message, "code": status})
        elif "/exec?" in line.head:
            prints(b"output")(line)
        elif "watch=true" in line.head:
            line.answer(200, {"type": "MODIFIED", "object": POD})
        else:
            line.answer(200, POD)

    patience = RetryPolicy(total_s=20, first_s=0.01, longest_s=0.05, rights_s=rights_s)
    with serving(play) as cluster:
        cluster.configuration.retries = False
        pods = Pods(cluster, patience)
        yield KubernetesPod(pods, Exec(cluster, "sb-1"), POD, patience), pods


@pytest.mark.parametrize("refusal", EARLY)
@pytest.mark.parametrize("request_", REQUESTS)
def test_early_refusal_is_retried(request_: str, refusal: str) -> None:
    with refusing(9, refusal, 10) as (box, pods):
        REQUESTS[request_](box, pods)


@pytest.mark.parametrize("refusal", ["role", "account"])
@pytest.mark.parametrize("request_", ["exec", "look", "remove", "watch"])
def test_lasting_refusal_is_config_error(request_: str, refusal: str) -> None:
    lasting = pytest.raises(ConfigError, match=r"runner may not get|rejected the credentials")
    with refusing(1000, refusal, 0.2) as (box, pods), lasting:
        REQUESTS[request_](box, pods)


# -- which failures are retried, and for how long

NO_SHELL = ExecRefused(500, 'OCI runtime exec failed: exec failed: exec: "/bin/sh": no such file or directory')
NO_RIGHT = ExecRefused(403, 'pods "sb" is forbidden: User "runner" cannot get resource "pods/exec" in API group ""')
AWAY = ConnectionError("exec lost")
SHELL_S, RIGHT_S = int(pod.REFUSED_S), 20


@pytest.mark.parametrize(
    ("errors", "last", "expected"),
    [
        ([], NO_SHELL, SHELL_S + 1),
        ([AWAY] * 30, NO_SHELL, 30 + SHELL_S + 1),
        ([*[NO_SHELL] * 9, AWAY], NO_SHELL, 10 + SHELL_S + 1),
        ([], NO_RIGHT, RIGHT_S + 1),
        ([*[AWAY] * 30, *[NO_RIGHT] * 9, AWAY], NO_RIGHT, 40 + RIGHT_S + 1),
        ([], AWAY, 100),
        ([], ValueError("ours"), 1),
    ],
)
def test_retries_depend_on_the_failure(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception], last: Exception, expected: int
) -> None:
    """Count the tries of a script within 100 s, by a clock that counts tries."""
    clock, tries = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)

    def try_once() -> None:
        clock[0] += 1
        tries.append(clock[0])
        raise errors[len(tries) - 1] if len(tries) <= len(errors) else last

    patience = RetryPolicy(total_s=100, rights_s=RIGHT_S)
    with pytest.raises(type(last)):
        patience.retrying(pod._IsTransient(patience))(try_once)
    assert expected <= len(tries) <= expected + (last is AWAY)
