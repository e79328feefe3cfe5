"""The way to a Docker engine: one client a process, calls repeated while it may be the connection, then plain words."""

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
DEFAULT_SOCKET = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class EngineRetries:
    """How often, and first how many seconds apart, a call is repeated; the wait doubles up to ``longest_s``."""

    attempts: int = 6
    first_s: float = 0.25
    longest_s: float = 4.0

    def retrying(self, when: Callable[[BaseException], bool]) -> Retrying:
        """A tenacity loop that ends with the last error itself."""
        return Retrying(
            stop=stop_after_attempt(self.attempts),
            wait=wait_exponential(multiplier=self.first_s, max=self.longest_s) + wait_random(0, self.first_s),
            retry=retry_if_exception(when),
            reraise=True,
        )


@cache
def connect_engine() -> DockerClient:
    """The engine of DOCKER_HOST, of the current docker context, or of the default socket; asked for its version.

    Raises ConfigError when none answers.
    """
    address = engine_address()
    why_not = why_unreachable(address)
    if not why_not:
        try:
            return from_env(timeout=CALL_TIMEOUT_S, max_pool_size=POOL)
        except (DockerException, requests.RequestException, OSError) as error:
            why_not = explanation(error)[:200]
    raise ConfigError(
        f"no Docker engine answers at {address} ({why_not}): start Docker, point DOCKER_HOST at an engine, "
        "or use --backend local",
        field="sandbox.backend",
    )


def engine_address() -> str:
    """Where the docker command would look for its engine."""
    for read_settings in (kwargs_from_env, ContextAPI.kwargs_from_context):
        try:
            address = read_settings().get("base_url")
        except (DockerException, OSError):
            continue
        if address:
            return str(address)
    return DEFAULT_SOCKET


def why_unreachable(address: str) -> str:
    """Why nobody listens at a Unix socket; empty where somebody does, or where the address is of another kind."""
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
    """Whether the same call may well succeed in a moment: the connection, or an engine that is busy or starting."""
    if isinstance(error, APIError):
        return error.status_code is None or error.status_code >= 500 or error.status_code == 429
    return isinstance(error, (requests.RequestException, ConnectionError, TimeoutError, EOFError, DockerException))


def call_engine(act: Callable[[], T], patience: EngineRetries, failure: FailureClass, doing: str) -> T:
    """Do one idempotent call. Raises ``engine_failure`` of the last error; APIError 4xx comes through as it is."""
    try:
        return patience.retrying(is_transient)(act)
    except APIError as error:
        if not is_transient(error):
            raise
        raise engine_failure(error, failure, doing) from error
    except (DockerException, OSError, EOFError) as error:
        raise engine_failure(error, failure, doing) from error


def engine_failure(error: BaseException, failure: FailureClass, doing: str) -> StepError:
    """The failure in our words, with what the engine said."""
    message = explanation(error)
    if "no space left on device" in message.lower():
        return ResourceError(
            FailureClass.OUT_OF_DISK, f"{doing}: no space left on the Docker engine's disk", detail=message
        )
    if isinstance(error, APIError):
        return InfraError(failure, f"{doing}: the Docker engine said: {message[:300]}", detail=message)
    return InfraError(failure, f"{doing}: the Docker engine stopped answering ({type(error).__name__})", detail=message)


def explanation(error: BaseException) -> str:
    """What the engine said, without the client's wrapping."""
    message = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return " ".join(str(message).split())
