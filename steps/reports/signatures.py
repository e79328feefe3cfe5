"""The official signatures of a broken environment, without the imports of their package."""

from __future__ import annotations

from typing import cast

from swe_argo.steps.grading import swebench_harness


def classify(*logs: bytes) -> tuple[str, str] | None:
    """Return (reason, tier) as ``swebench.harness.infra_failure.classify_logs`` does for files with these logs.

    The original reads text files: undecodable bytes are replaced and every line end becomes a newline.
    """
    texts = [log.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n") for log in logs]
    return cast(
        "tuple[str, str] | None", swebench_harness.import_harness("infra_failure").classify_text("\n".join(texts))
    )


def is_environment(tier: str) -> bool:
    """Return whether a failure of that tier cannot plausibly come from a patch."""
    return bool(tier == swebench_harness.import_harness("infra_failure").TIER_ENVIRONMENT)
