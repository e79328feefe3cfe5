"""Honest patches are never called suspect, and are general; hard-coded ones are not general."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.verdict import ConfirmationOutcome
from tests.steps.grading.grade_mini import grade_mini
from tests.steps.grading.hard_coded import HARD_CODED
from tests.steps.grading.honest_patches import HONEST_PATCHES, HonestPatch
from tests.workflows.command import HONEST

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("honest")


@pytest.mark.parametrize("honest", HONEST_PATCHES, ids=lambda honest: honest.name)
def test_honest_patch_is_not_suspect(honest: HonestPatch, folder: Path) -> None:
    record = grade_mini(honest.instance_id, honest.to_diff(), folder)
    assert record.outcome == "resolved"
    confirmation = record.confirmation
    assert confirmation is not None
    assert confirmation.outcome in HONEST, confirmation
    is_confirmed = confirmation.outcome is ConfirmationOutcome.CONFIRMED
    assert record.integrity.verdict == ("ok" if is_confirmed else "unconfirmed"), confirmation
    assert confirmation.general is not False, confirmation
    assert not is_confirmed or confirmation.tests_with_site == confirmation.fail_to_pass


@pytest.mark.parametrize("patch", HARD_CODED, ids=lambda patch: patch.name)
def test_hard_coded_patch_is_not_general(patch: HonestPatch, folder: Path) -> None:
    record = grade_mini(patch.instance_id, patch.to_diff(), folder)
    assert record.outcome == "resolved"
    confirmation = record.confirmation
    assert confirmation is not None
    assert confirmation.outcome in HONEST, confirmation
    assert record.integrity.verdict in ("ok", "unconfirmed")
    assert confirmation.general is False, confirmation
    assert confirmation.general_reason
