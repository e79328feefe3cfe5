"""The page of failures names every class and every outcome, and no other."""

from __future__ import annotations

import re

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.verdict import Outcome
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "failures.md").read_text("utf-8")


def names(section: str) -> list[str]:
    """The first column of the table under a heading."""
    body = PAGE.split(f"## {section}")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)


def test_failures_page_lists_classes() -> None:
    assert names("Failures") == [item.value for item in FailureClass]


def test_failures_page_lists_outcomes() -> None:
    assert names("Outcomes") == [item.value for item in Outcome]
