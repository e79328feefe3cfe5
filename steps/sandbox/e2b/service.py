"""Access to an E2B service: its addresses and key, and its failures."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from e2b import (
    AuthenticationException,
    RateLimitException,
    Sandbox,
    SandboxException,
    TimeoutException,
)
from e2b.connection_config import ApiParams, ConnectionConfig
from e2b.exceptions import ServiceBusyException
from tenacity import Retrying

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError, StepError, one_line
from swe_argo.steps.sandbox.envd.failures import FAILURES, GONE, retrying
from swe_argo.steps.settings import settings

T = TypeVar("T")

_REASON_WIDTH = 300


def service_options() -> ApiParams:
    """Return the options for every call of the SDK. Raises ConfigError without a key.

    The SDK must not retry calls of the control plane by itself: a repeated create must wait for its turn, too.
    """
    own = settings()
    if own.e2b_api_key is None:
        raise ConfigError("backend e2b needs the key of an E2B account: set E2B_API_KEY", field="sandbox.backend")
    options: ApiParams = {
        "api_key": own.e2b_api_key.get_secret_value(),
        "request_timeout": own.e2b_connection_timeout_s,
        "retries": 0,
        "debug": False,  # with E2B_DEBUG the SDK would leave sandboxes running
    }
    if own.e2b_domain:
        options["domain"] = own.e2b_domain
    if own.e2b_api_url:
        options["api_url"] = own.e2b_api_url
    return options


def service_address() -> str:
    """Return the service's address for messages. Raises ConfigError without a key."""
    return str(ConnectionConfig(**service_options()).api_url)


def account_id() -> str:
    """Return an id of the account that reveals nothing of the key. Raises ConfigError without a key."""
    options = service_options()
    return hashlib.sha256(f"{service_address()} {options['api_key']}".encode()).hexdigest()[:16]


def call_service(act: Callable[[], T], failure: FailureClass, doing: str, patience: Retrying | None = None) -> T:
    """Make one call that is safe to repeat. Raises ``service_failure``; ``GONE`` is raised as it is."""
    try:
        return (patience or retrying())(act)
    except GONE:
        raise
    except FAILURES as error:
        raise service_failure(error, failure, doing) from error


def service_failure(error: BaseException, failure: FailureClass, doing: str) -> StepError:
    """Return the failure with the service's message."""
    words = one_line(str(error) or type(error).__name__, _REASON_WIDTH)
    if isinstance(error, AuthenticationException):
        return ConfigError(f"E2B refuses the key of E2B_API_KEY: {words}", field="sandbox.backend", detail=str(error))
    if isinstance(error, RuntimeError):
        way_out = "install ca-certificates, or name a file of certificates in SSL_CERT_FILE"
        return ConfigError(f"no client of E2B can be made here: {words}: {way_out}", field="sandbox.backend")
    return InfraError(failure, f"{doing}: {_how(error)}: {words}", detail=str(error))


def _how(error: BaseException) -> str:
    if isinstance(error, RateLimitException):
        return "E2B takes no more at present (429, rate or concurrency of the plan)"
    if isinstance(error, ServiceBusyException):
        return "E2B is busy (503)"
    if isinstance(error, SandboxException) and not isinstance(error, TimeoutException):
        return "E2B says"
    return f"E2B does not answer ({type(error).__name__})"


class E2BControl:
    """The control plane of the service for one sandbox, see ``Control``.

    ``ends``: the end of its life, by this machine's monotonic clock.
    """

    def __init__(self, box: Sandbox, *, ends: float) -> None:
        self.sandbox_id = str(box.sandbox_id)
        self._box = box
        self._ends = ends

    def client(self) -> Sandbox:
        """Return the client; its token is valid until the sandbox refuses it."""
        return self._box

    def renew(self) -> bool:
        """Fetch the current token, without extending the sandbox's life."""
        left_s = max(1, math.ceil(self._ends - time.monotonic()))
        options = service_options()
        try:
            self._box = call_service(
                lambda: Sandbox.connect(self.sandbox_id, timeout=left_s, **options),
                FailureClass.EXEC,
                f"asking for the token of sandbox {self.sandbox_id}",
            )
        except GONE:
            return False
        return True

    def is_there(self) -> bool:
        """Return whether the sandbox runs. Raises InfraError, ConfigError."""
        options = service_options()
        try:
            call_service(
                lambda: Sandbox.get_info(self.sandbox_id, **options),
                FailureClass.SANDBOX_LOST,
                f"asking for sandbox {self.sandbox_id}",
            )
        except GONE:
            return False
        return True

    def kill(self) -> None:
        """Remove the sandbox. Raises InfraError, ConfigError."""
        kill_sandbox(self.sandbox_id)

    def failure(self, error: BaseException, failure: FailureClass, doing: str) -> StepError:
        """Return the failure, see ``service_failure``; a refused token is not the account's key."""
        if isinstance(error, AuthenticationException):
            return InfraError(failure, f"{doing}: it refuses the token that E2B gave for it", detail=str(error))
        return service_failure(error, failure, doing)


def kill_sandbox(sandbox_id: str) -> bool:
    """Remove a sandbox; return False if it was gone already. Raises InfraError, ConfigError."""
    options: Any = service_options()
    try:
        return call_service(
            lambda: bool(Sandbox.kill(sandbox_id, **options)),
            FailureClass.SANDBOX_LOST,
            f"removing sandbox {sandbox_id}",
        )
    except GONE:
        return False
