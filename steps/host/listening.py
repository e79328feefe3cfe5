"""Where a server of ours takes connections, and who can reach it."""

from __future__ import annotations

import ipaddress
import socket

from swe_argo.steps.errors import ConfigError

BACKLOG = 2048
"""Connections that wait to be taken: a run begins hundreds of rollouts at once."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections at ``port``, or at any where that is 0. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # asyncio does this for its own sockets only: an answer's body would wait 40 ms for the headers' receipt.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror or error}", field="--port") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """Where clients find it."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
