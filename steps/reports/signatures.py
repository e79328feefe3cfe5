"""swebench's signatures of a broken environment, without importing the whole package."""

from __future__ import annotations

from typing import cast

from swe_argo.steps.grading import swebench_harness


def classify(*logs: bytes) -> tuple[str, str] | None:
    """Return (reason, tier) as ``swebench.harness.infra_failure.classify_logs`` does for files with these logs.

    As in the original, undecodable bytes are replaced and every line end becomes a newline.
    """
    texts = [log.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n") for log in logs]
    return cast(
        "tuple[str, str] | None", swebench_harness.import_harness("infra_failure").classify_text("\n".join(texts))
    )


def is_environment(tier: str) -> bool:
    """Return whether failures of that tier come from the environment, not from a patch."""
    return bool(tier == swebench_harness.import_harness("infra_failure").TIER_ENVIRONMENT)
