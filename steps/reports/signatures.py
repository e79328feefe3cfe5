"""The official signatures of a broken environment, without the imports of the package they live in."""

from __future__ import annotations

from typing import cast

from swe_argo.steps.grading import swebench_harness


def classify(*logs: bytes) -> tuple[str, str] | None:
    """(reason, tier) of logs as ``swebench.harness.infra_failure.classify_logs`` gives it for the files that hold them.

    That reads text files: undecodable bytes are replaced and every line end is a newline.
    """
    texts = [log.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n") for log in logs]
    return cast(
        "tuple[str, str] | None", swebench_harness.import_harness("infra_failure").classify_text("\n".join(texts))
    )


def is_environment(tier: str) -> bool:
    """Whether that tier cannot plausibly come from a patch."""
    return bool(tier == swebench_harness.import_harness("infra_failure").TIER_ENVIRONMENT)
