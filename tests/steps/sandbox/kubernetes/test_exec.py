"""One command over one websocket, and every way in which there is no answer."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading

import pytest

pytest.importorskip("kubernetes")

from swe_argo.steps.sandbox.kubernetes import exec as module
from swe_argo.steps.sandbox.kubernetes.exec import URL_BYTES, Exec, ExecRefused
from tests.steps.sandbox.kubernetes.channels import Line, Play, serving

SUCCESS: dict[str, object] = {"metadata": {}, "status": "Success"}


def failure(code: int) -> dict[str, object]:
    cause = {"reason": "ExitCode", "message": str(code)}
    return {
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [cause]},
    }


def once(play: Play, script: str = "true", stdin: bytes = b"", wait_s: float = 1.0) -> tuple[int, bytes]:
    with serving(play) as cluster:
        return Exec(cluster, "sb-1").once(script, stdin, wait_s)


@pytest.mark.parametrize(("status", "code"), [(SUCCESS, 0), (failure(3), 3), (failure(137), 137)])
def test_exec_reads_the_status_channel(status: dict[str, object], code: int) -> None:
    def play(line: Line) -> None:
        line.accept()
        line.say(1, b"one ")
        line.say(2, b"an error nobody asked for")
        line.say(1, b"")
        line.say(1, b"two\xff")
        line.end(status)

    assert once(play) == (code, b"one two\xff")


def test_request_names_pod_and_command() -> None:
    lines: list[Line] = []

    def play(line: Line) -> None:
        lines.append(line)
        line.accept()
        line.end(SUCCESS)

    once(play, "echo 'a b' & é")
    assert lines[0].head.startswith("GET /api/v1/namespaces/somewhere/pods/sb-1/exec?")
    assert lines[0].query == {
        "container": ["sandbox"],
        "stdout": ["true"],
        "command": ["/bin/sh", "-c", "echo 'a b' & é"],
    }
    assert "\r\nauthorization: Bearer secret\r\n" in lines[0].head
    assert "\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n" in lines[0].head


def test_long_script_goes_by_stdin() -> None:
    script = "x=" + "é" * URL_BYTES
    expected = f"exec 9>&2\n{script}\nexit\n".encode()
    heard = []

    def play(line: Line) -> None:
        assert line.query["command"] == ["/bin/sh"]
        assert len(line.head) < 1000
        line.accept()
        heard.append(line.hear(len(expected)))
        line.end(SUCCESS)

    once(play, script)
    assert heard == [expected]


def test_long_stdin_arrives_unchanged() -> None:
    data = hashlib.shake_256(b"seed").digest(700_000)
    heard = []

    def play(line: Line) -> None:
        assert line.query["stdin"] == ["true"]
        line.accept()
        heard.append(line.hear(len(data)))
        line.end(SUCCESS)

    once(play, "cat", data)
    assert heard == [data]


def test_long_output_is_complete() -> None:
    piece = hashlib.shake_256(b"seed").digest(1 << 15)

    def play(line: Line) -> None:
        line.accept()
        for _ in range(800):
            line.say(1, piece)
        line.end(SUCCESS)

    code, out = once(play)
    assert (code, hashlib.sha256(out).digest()) == (0, hashlib.sha256(piece * 800).digest())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_refused_handshake_is_explained(status: int) -> None:
    body: dict[str, object] = {"kind": "Status", "message": f'pods "sb-1":\n  number {status}', "code": status}
    with pytest.raises(ExecRefused) as caught:
        once(lambda line: line.answer(status, body, "Retry-After: 7\r\n"))
    assert (caught.value.status, caught.value.text) == (status, f'pods "sb-1": number {status}')
    assert caught.value.headers == {"Retry-After": "7"}


def test_proxy_refusal_is_quoted() -> None:
    with pytest.raises(ExecRefused, match="exec refused with 502: <html>bad gateway</html>"):
        once(lambda line: line.answer(502, "<html>bad\ngateway</html>".replace("\n", " ")))


@pytest.mark.parametrize(
    "message",
    [
        'Internal error occurred: error executing command in container: container not found ("sandbox")',
        "Internal error occurred: error sending request: dial tcp 10.0.0.1:10250: connect: connection refused",
    ],
)
def test_late_refusal_is_an_exec_refusal(message: str) -> None:
    def play(line: Line) -> None:
        line.accept()
        causes = [{"message": message}]
        line.end(
            {
                "status": "Failure",
                "message": message,
                "reason": "InternalError",
                "details": {"causes": causes},
                "code": 500,
            }
        )

    with pytest.raises(ExecRefused) as caught:
        once(play)
    assert (caught.value.status, caught.value.text) == (500, message)


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
def test_refusal_tells_runtime_from_node(text: str, by_runtime: bool, unreached: bool) -> None:
    error = ExecRefused(500, text)
    assert (error.by_runtime, error.unreached) == (by_runtime, unreached)


def reset(line: Line) -> None:
    line.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def after_output(line: Line) -> None:
    line.accept()
    line.say(1, b"half of it")


def within_a_frame(line: Line) -> None:
    line.accept()
    line.line.sendall(b"\x82\x7e\x10\x00\x01only this")


def without_a_status(line: Line) -> None:
    line.accept()
    line.say(1, b"all of it")
    line.say(0, struct.pack(">H", 1000), opcode=8)


def with_a_broken_status(line: Line) -> None:
    line.accept()
    line.end({"status": "Failure", "reason": "NonZeroExitCode", "details": None})


def with_half_a_handshake(line: Line) -> None:
    line.line.sendall(b"HTTP/1.1 101 Switching")


@pytest.mark.parametrize(
    "play",
    [
        reset,
        lambda line: None,
        with_half_a_handshake,
        Line.accept,
        after_output,
        within_a_frame,
        without_a_status,
        with_a_broken_status,
    ],
)
def test_missing_status_is_a_loss(play: Play) -> None:
    with pytest.raises(ConnectionError):
        once(play)


def test_cut_after_status_is_no_loss() -> None:
    def play(line: Line) -> None:
        line.accept()
        line.say(1, b"out")
        line.say(3, b'{"status": "Success"}')

    assert once(play) == (0, b"out")


def test_refused_connect_is_a_loss() -> None:
    with serving(reset) as cluster:
        pass
    with pytest.raises(ConnectionError):
        Exec(cluster, "sb-1").once("true", b"", 1)


@pytest.mark.parametrize("shaken", [False, True])
def test_silence_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch, shaken: bool) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.2)
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)
    over = threading.Event()

    def play(line: Line) -> None:
        if shaken:
            line.accept()
            line.say(1, b"and then nothing")
        over.wait()

    with serving(play) as cluster:
        try:
            with pytest.raises(ConnectionError, match=r"timed out|Timeout"):
                Exec(cluster, "sb-1").once("sleep 9", b"", 0.2)
        finally:
            over.set()
