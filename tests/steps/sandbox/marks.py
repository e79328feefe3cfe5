"""Marks in every place that two sandboxes could share. Runs in a sandbox, by any python3.

``leave`` leaves them and prints those that it cannot see itself; ``find`` prints those that are there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

NAME = "swe-argo-mark"
FILES = [f"{folder}/{NAME}" for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/testbed", "~", "~/.cache/pip")]
SYSTEM_V = {"shmget": (0x5EA260, 1), "semget": (0x5EA260, 1), "msgget": (0x5EA260,)}
ADD_KEY, KEYCTL = {"aarch64": (217, 219)}.get(platform.machine(), (248, 250))
JOIN_SESSION_KEYRING, SEARCH = 1, 10
KEYRINGS = {"session key": -3, "user key": -4, "user session key": -5}
SOCKETS: dict[str, tuple[int, str | tuple[str, int]]] = {
    "abstract socket": (socket.AF_UNIX, f"\0{NAME}"),
    "port": (socket.AF_INET, ("127.0.0.1", 47113)),
}
GIT = ["git", "config", "--global", "user.name"]
libc = ctypes.CDLL(None)


def leave() -> None:
    for file in FILES:
        path = Path(file).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    subprocess.run([*GIT, NAME], check=True)
    for call, identifiers in SYSTEM_V.items():
        getattr(libc, call)(*identifiers, 0o1666)
    for keyring in KEYRINGS.values():
        libc.syscall(ADD_KEY, b"user", NAME.encode(), b"x", 1, keyring)
    if os.fork() == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        listening = [socket.socket(family) for family, _ in SOCKETS.values()]
        for listener, (_, address) in zip(listening, SOCKETS.values()):  # noqa: B905 - an image's python3 may be old
            listener.bind(address)
            listener.listen()
        time.sleep(1000)
    while "port" not in find():  # the time limit of the command ends this
        time.sleep(0.05)


def find() -> set[str]:
    marks = {file for file in FILES if Path(file).expanduser().exists()}
    if subprocess.run(GIT, capture_output=True, check=False).stdout.strip() == NAME.encode():
        marks.add("git configuration")
    marks |= {call for call, identifiers in SYSTEM_V.items() if getattr(libc, call)(*identifiers, 0) >= 0}
    for name, keyring in KEYRINGS.items():
        if libc.syscall(KEYCTL, SEARCH, keyring, b"user", NAME.encode(), 0) >= 0:
            marks.add(name)
    for name, (family, address) in SOCKETS.items():
        with socket.socket(family) as connection:
            if connection.connect_ex(address) == 0:
                marks.add(name)
    if any(b"leave" in path.read_bytes().split(b"\0") for path in Path("/proc").glob("[0-9]*/cmdline")):
        marks.add("process")
    return marks


if __name__ == "__main__":
    if sys.argv[1] == "leave":
        leave()
        marks = {*FILES, "git configuration", *SYSTEM_V, *KEYRINGS, *SOCKETS, "process"} - find()
    else:
        marks = find()
    sys.stdout.write("".join(f"{mark}\n" for mark in sorted(marks)))
