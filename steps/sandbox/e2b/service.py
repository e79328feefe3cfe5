"""The way to an E2B service: its addresses and key, and its failures in our words."""

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
    """What every call of the SDK is given. Raises ConfigError without a key.

    The SDK repeats nothing of the control plane by itself: a repeated create must wait for its turn, too.
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
    """Where the service is, for a person. Raises ConfigError without a key."""
    return str(ConnectionConfig(**service_options()).api_url)


def account_id() -> str:
    """Tells accounts apart, and says nothing of the key. Raises ConfigError without a key."""
    options = service_options()
    return hashlib.sha256(f"{service_address()} {options['api_key']}".encode()).hexdigest()[:16]


def call_service(act: Callable[[], T], failure: FailureClass, doing: str, patience: Retrying | None = None) -> T:
    """Do one call that is safe to repeat. Raises ``service_failure``; ``GONE`` comes through as it is."""
    try:
        return (patience or retrying())(act)
    except GONE:
        raise
    except FAILURES as error:
        raise service_failure(error, failure, doing) from error


def service_failure(error: BaseException, failure: FailureClass, doing: str) -> StepError:
    """The failure in our words, with what the service said."""
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
    """What the service's control plane knows and does of one sandbox: see ``Control``.

    ``ends``: when its life is over, by this machine's monotonic clock.
    """

    def __init__(self, box: Sandbox, *, ends: float) -> None:
        self.sandbox_id = str(box.sandbox_id)
        self._box = box
        self._ends = ends

    def client(self) -> Sandbox:
        """Its token holds until the sandbox refuses it."""
        return self._box

    def renew(self) -> bool:
        """Fetch the token that holds now; the life stays as long as it is."""
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
        """Raises InfraError, ConfigError."""
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
        """Raises InfraError, ConfigError."""
        kill_sandbox(self.sandbox_id)

    def failure(self, error: BaseException, failure: FailureClass, doing: str) -> StepError:
        """See ``service_failure``; a token that is refused is not the account's key."""
        if isinstance(error, AuthenticationException):
            return InfraError(failure, f"{doing}: it refuses the token that E2B gave for it", detail=str(error))
        return service_failure(error, failure, doing)


def kill_sandbox(sandbox_id: str) -> bool:
    """Remove a sandbox; False where there was none any more. Raises InfraError, ConfigError."""
    options: Any = service_options()
    try:
        return call_service(
            lambda: bool(Sandbox.kill(sandbox_id, **options)),
            FailureClass.SANDBOX_LOST,
            f"removing sandbox {sandbox_id}",
        )
    except GONE:
        return False
