"""The columns of a SWE-bench instance for grading, which only grade may see."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.data import Answer


class SweBenchAnswer(Answer):
    """A SWE-bench instance's answer."""

    repo: str
    version: str
    image: str
    patch: str
    test_patch: str
    eval_script: str
    FAIL_TO_PASS: list[str]
    PASS_TO_PASS: list[str]
    log_parser: str
    eval_type: str
    image_assets: dict[str, Any] = {}

    def row(self) -> dict[str, Any]:
        """Return the row for ``swebench.harness.utils.make_test_spec``."""
        return self.model_dump(exclude={"family", "row_sha256"})
