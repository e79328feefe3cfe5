"""Attribution of failures in a sandbox that has run untrusted code: only evidence from outside the sandbox counts.

Damage that such code does to its own machine (its first process limited, the shell removed, our files replaced) looks
from inside like a broken machine. So the code is to blame for the failure, unless the machine's host confirms it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.wrapper import SandboxWrapper

T = TypeVar("T")


class SandboxBroken(InfraError):  # noqa: N818
    """A sandbox that failed after running untrusted code, with no cause known from outside.

    ``failure_class`` is the apparent class, ``output`` the output of the command that was running.
    """


def as_untrusted(box: Sandbox, *, enlarged: bool = False) -> Sandbox:
    """Return the sandbox, wrapped for running untrusted code. Its methods raise SandboxBroken besides the usual errors.

    ``enlarged``: it has more memory and disk than usual because they ran out before; if they run out again, the code is
    to blame as well. A broken sandbox stays broken: no further call reaches it.
    """
    return _UntrustedSandbox(box, enlarged=enlarged)


def attribute_failure(error: StepError, outside: StepError | None, *, enlarged: bool) -> StepError:
    """Return the failure to act on, given the sandbox's ``error`` and its host's report ``outside``."""
    if isinstance(error, ConfigError):
        return error  # an error of the backend's client, never of the machine
    if outside is None or (enlarged and isinstance(outside, ResourceError)):
        failure = outside or error
        broken = SandboxBroken(failure.failure_class, failure.reason, detail=failure.detail)
        broken.output = error.output
        return broken
    if outside.reason != error.reason:
        outside.detail = f"{outside.detail}\n{error.reason}\n{error.detail}".strip()
    outside.output = error.output
    return outside


class _UntrustedSandbox(SandboxWrapper):
    def __init__(self, inner: Sandbox, *, enlarged: bool) -> None:
        super().__init__(inner)
        self._enlarged = enlarged
        self._failed: StepError | None = None

    def around(self, act: Callable[[], T]) -> T:
        if self._failed is not None:
            raise self._failed
        try:
            return act()
        except StepError as error:
            self._failed = attribute_failure(error, self.outside_failure(), enlarged=self._enlarged)
            raise self._failed from error
