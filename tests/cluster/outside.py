"""A host beyond this machine's own addresses: a network namespace behind a veth pair, with a server that says hello."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PORT = 80
_PREFIX = "out"  # before the process that made it
SERVER = """
import contextlib, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.settimeout(5)
    with connection, contextlib.suppress(OSError):  # one caller that resets or says nothing is not the end
        connection.recv(4096)
        connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nhello\\n")
"""


@contextlib.contextmanager
def outside_host() -> Iterator[str]:
    """The address of a new host outside, which answers HTTP on port 80. It needs root."""
    _remove_hosts_of_dead_processes()
    name = f"{_PREFIX}{os.getpid()}"
    near, far = _free_network()
    with contextlib.ExitStack() as undo:
        for command in (
            f"netns add {name}",
            f"link add {name} type veth peer name eth0 netns {name}",
            f"address add {near}/30 dev {name}",
            f"link set {name} up",
            f"-n {name} address add {far}/30 dev eth0",
            f"-n {name} link set eth0 up",
            f"-n {name} route add default via {near}",
        ):
            subprocess.run(["ip", *command.split()], check=True)
            if command.startswith("netns"):
                undo.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
            if command.startswith("link add"):
                undo.callback(subprocess.run, ["ip", "link", "delete", name], check=False, capture_output=True)
        server = subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", SERVER, far, str(PORT)], stdout=subprocess.PIPE
        )
        undo.enter_context(server)
        undo.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield far


def _free_network() -> tuple[str, str]:
    """Both addresses of a network of four, of those kept for examples, that no other test of this machine has."""
    addresses = _ip("-brief", "address")
    for net in range(0, 256, 4):
        near, far = f"198.51.100.{net + 1}", f"198.51.100.{net + 2}"
        if f"{near}/" not in addresses:
            return near, far
    raise AssertionError("198.51.100.0/24 is taken whole")


def _remove_hosts_of_dead_processes() -> None:
    """A test run that was killed leaves its host, whose address a later run would meet."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        process = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and process.isdecimal() and not Path(f"/proc/{process}").exists():
            for server in _ip("netns", "pids", name).split():
                os.kill(int(server), signal.SIGKILL)
            _ip("netns", "delete", name)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
