"""Listening sockets of our servers, and the check whether other machines can reach them."""

from __future__ import annotations

import ipaddress
import socket

from swe_argo.steps.errors import ConfigError

BACKLOG = 2048
"""Length of the accept queue: a run starts hundreds of rollouts at once."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at ``port``, or at any free port if that is 0. Raises ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # asyncio sets it on its own sockets only: a response's body would wait 40 ms for the headers' acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror or error}", field="--port") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL at which clients reach a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on that host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
