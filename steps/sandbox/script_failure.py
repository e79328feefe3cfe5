"""Classification of failures of our own scripts, in sandboxes that have run no untrusted code."""

from __future__ import annotations

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError, ResourceError
from swe_argo.steps.sandbox.protocol import ExecResult


def script_failure(script: str, result: ExecResult) -> InfraError | ResourceError:
    """Return the failure of one of our scripts, named ``script``: out of disk or memory by its output, else EXEC."""
    detail = (result.stderr or result.stdout).decode("utf-8", "replace")[-4000:]
    if "No space left on device" in detail:
        return ResourceError(FailureClass.OUT_OF_DISK, f"{script} ran out of disk", detail=detail)
    if result.exit_code == 137 or "ut of memory" in detail or "Cannot allocate memory" in detail:
        return ResourceError(FailureClass.OUT_OF_MEMORY, f"{script} ran out of memory", detail=detail)
    end = "timed out" if result.timed_out else f"ended with exit code {result.exit_code}"
    return InfraError(FailureClass.EXEC, f"{script} {end}", detail=detail)
