"""Access to a Docker engine: one client per process, with retries of transient failures and clear errors."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import requests
from docker import DockerClient, from_env
from docker.context import ContextAPI
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError

T = TypeVar("T")

CALL_TIMEOUT_S = 60
POOL = 32
"""Connections that the client keeps."""
DEFAULT_SOCKET = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class EngineRetries:
    """Retries of engine calls; the first wait is ``first_s`` seconds and doubles up to ``longest_s``."""

    attempts: int = 6
    first_s: float = 0.25
    longest_s: float = 4.0

    def retrying(self, when: Callable[[BaseException], bool]) -> Retrying:
        """Return a retry loop over errors for which ``when`` is true; it raises the last error."""
        return Retrying(
            stop=stop_after_attempt(self.attempts),
            wait=wait_exponential(multiplier=self.first_s, max=self.longest_s) + wait_random(0, self.first_s),
            retry=retry_if_exception(when),
            reraise=True,
        )


@cache
def connect_engine() -> DockerClient:
    """Connect to the engine that the docker command would use. Raises ConfigError if none answers."""
    address = engine_address()
    problem = why_unreachable(address)
    if not problem:
        try:
            return from_env(timeout=CALL_TIMEOUT_S, max_pool_size=POOL)
        except (DockerException, requests.RequestException, OSError) as error:
            problem = engine_message(error)[:200]
    raise ConfigError(
        f"no Docker engine answers at {address} ({problem}): start Docker, point DOCKER_HOST at an engine, "
        "or use --backend local",
        field="sandbox.backend",
    )


def engine_address() -> str:
    """Return the engine address that the docker command would use: DOCKER_HOST, its context, or the default."""
    for read_settings in (kwargs_from_env, ContextAPI.kwargs_from_context):
        try:
            address = read_settings().get("base_url")
        except (DockerException, OSError):
            continue
        if address:
            return str(address)
    return DEFAULT_SOCKET


def why_unreachable(address: str) -> str:
    """Return why a Unix socket is unreachable, or "" if it is reachable or the address is not a Unix socket."""
    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return ""
    with closing(socket.socket(socket.AF_UNIX)) as line:
        try:
            line.connect(path)
        except PermissionError:
            return "permission denied: is your user in the group docker?"
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed: the connection failed, or the engine is busy or starting."""
    if isinstance(error, APIError):
        return error.status_code is None or error.status_code >= 500 or error.status_code == 429
    return isinstance(error, (requests.RequestException, ConnectionError, TimeoutError, EOFError, DockerException))


def call_engine(act: Callable[[], T], patience: EngineRetries, failure: FailureClass, doing: str) -> T:
    """Make an idempotent call with retries. Raises ``engine_failure`` of the last error, or APIError for a 4xx.

    ``failure``: the class of the failure; ``doing``: the action for its message.
    """
    try:
        return patience.retrying(is_transient)(act)
    except APIError as error:
        if not is_transient(error):
            raise
        raise engine_failure(error, failure, doing) from error
    except (DockerException, OSError, EOFError) as error:
        raise engine_failure(error, failure, doing) from error


def engine_failure(error: BaseException, failure: FailureClass, doing: str) -> StepError:
    """Return the failure with the engine's message: ResourceError for a full disk, else InfraError (``failure``)."""
    message = engine_message(error)
    if "no space left on device" in message.lower():
        return ResourceError(
            FailureClass.OUT_OF_DISK, f"{doing}: no space left on the Docker engine's disk", detail=message
        )
    if isinstance(error, APIError):
        return InfraError(failure, f"{doing}: the Docker engine failed: {message[:300]}", detail=message)
    return InfraError(failure, f"{doing}: the Docker engine stopped answering ({type(error).__name__})", detail=message)


def engine_message(error: BaseException) -> str:
    """Return the engine's message, without the client's wrapping."""
    message = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return " ".join(str(message).split())
