"""Who is believed when a sandbox fails in which code has run that is not ours: only what is outside of that sandbox.

Whatever such code does to its own machine (its first process limited, the shell removed, our files replaced) looks from
inside like a machine that broke. So its failure is the code's doing, unless whoever runs the machine confirms it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from swe_argo.steps.errors import ConfigError, InfraError, ResourceError, StepError
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.wrapper import SandboxWrapper

T = TypeVar("T")


class SandboxBroken(InfraError):  # noqa: N818
    """A sandbox failed after code that is not ours had run in it, and nothing outside of it knows why.

    ``failure_class`` is what it looked like, ``output`` what the command had printed that was running.
    """


def as_untrusted(box: Sandbox, *, enlarged: bool = False) -> Sandbox:
    """The same sandbox, from where code that is not ours runs in it. Its methods raise SandboxBroken beside the rest.

    ``enlarged``: it was given more memory and disk than usual because they ran out before; that they run out again is
    the code's doing, too. Once broken it stays so: nothing more is asked of it.
    """
    return _UntrustedSandbox(box, enlarged=enlarged)


def attribute_failure(error: StepError, outside: StepError | None, *, enlarged: bool) -> StepError:
    """The failure to act upon, where a sandbox said ``error`` and whoever runs it said ``outside``."""
    if isinstance(error, ConfigError):
        return error  # of whoever was asked to run the command, never of the machine
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
