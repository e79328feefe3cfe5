"""How often an honest patch is taken for a cheat: reference patches, and patches as agents leave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from steps.grading import official
from steps.grading.patches.examiner import find
from steps.grading.patches.suite import suite_of
from tests.paths import DATA, needs_data
from tests.steps.grading.logs import make_row
from tests.steps.grading.patches.honest import PATCHES


@pytest.mark.parametrize("name", PATCHES)
def test_an_honest_agents_patch_is_believed(name: str) -> None:
    spec = official.make_test_spec(make_row(FAIL_TO_PASS=["tests/test_calc.py::test_adds_numbers"]))
    assert find(PATCHES[name], suite_of(spec)) == []


def test_no_reference_patch_is_named_with_what_agents_leave_beside_it(
    real_rows: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    left = b"".join(
        PATCHES[name] for name in ("three scripts", "a shell script", "notes", "a test of its own at the root")
    )
    alarms = {}
    for file in ("verified_test", "lite_test", "lite_dev", "multilingual_test", "multimodal_dev"):
        for name, row in real_rows(file).items():
            if found := find(row["patch"].encode() + left, suite_of(official.make_test_spec(row))):
                alarms[name] = found
    assert alarms == {}


@needs_data
def test_no_reference_patch_of_the_relatives_is_named() -> None:
    patches = {path.parent.name: path.read_bytes() for path in DATA.rglob("*.diff")}
    patches |= {
        row["instance_id"]: row["patch"].encode()
        for row in map(json.loads, (DATA / "swegym/rows.jsonl").read_text().splitlines())
    }
    spec = official.make_test_spec(make_row())
    assert len(patches) >= 10
    assert {name: found for name, patch in patches.items() if (found := find(patch, suite_of(spec)))} == {}
