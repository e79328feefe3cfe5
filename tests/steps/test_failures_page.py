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


def test_every_failure_class_has_its_row() -> None:
    assert names("Failures") == [each.value for each in FailureClass]


def test_every_outcome_has_its_row() -> None:
    assert names("Outcomes") == [each.value for each in Outcome]
