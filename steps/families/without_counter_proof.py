"""Graders without a counter-proof: of another family than SWE-bench."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from steps.contracts.verdict import Confirmation, CounterProof
from steps.grading.verdict import Verdict
from steps.sandbox.protocol import Sandbox


class WithoutCounterProof:
    """The part of a ``Grader`` that has nothing to put into a machine which must fail, and which must pass."""

    def confirm(
        self,
        open_sandbox: Callable[[], AbstractContextManager[Sandbox]],  # noqa: ARG002
        patch: bytes | None,  # noqa: ARG002
        verdict: Verdict,  # noqa: ARG002
        *,
        timeout_s: int,  # noqa: ARG002
        folder: str,  # noqa: ARG002
    ) -> CounterProof:
        """See ``Grader.confirm``: a test patch of SWE-bench takes further tests, other scripts may be of any kind."""
        return CounterProof(outcome=Confirmation.UNAVAILABLE, reason="only SWE-bench's scripts take further tests")
