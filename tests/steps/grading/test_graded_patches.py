"""Patches graded by the real step: forgeries are never ``ok``, honest patches never suspect."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.verdict import Confirmation, ConfirmationOutcome, GradeRecord
from tests.steps.grading import forgeries_of_runs, forgeries_of_tests
from tests.steps.grading.attacks import ATTACKS, TARGET
from tests.steps.grading.grade_mini import grade_mini
from tests.steps.grading.honest_patches import HARD_CODED, HONEST_PATCHES, HonestPatch
from tests.workflows.command import HONEST

pytestmark = pytest.mark.long
forgeries = pytest.mark.xdist_group("forgeries")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graded")


@forgeries
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_never_ok(folder: Path, name: str) -> None:
    grade = grade_mini(TARGET, ATTACKS[name], folder)
    assert not grade.resolved or grade.integrity.verdict != "ok", grade


@forgeries
@pytest.mark.parametrize("name", forgeries_of_runs.FORGERIES)
def test_forgery_of_runs_is_never_ok(folder: Path, name: str) -> None:
    instance_id, patch = forgeries_of_runs.FORGERIES[name]
    options = next((choice for start, choice in forgeries_of_runs.OPTIONS.items() if name.startswith(start)), None)
    grade = grade_mini(instance_id, patch, folder, options=options)
    assert (grade.resolved, grade.integrity.verdict != "ok") == (True, True), grade


@forgeries
@pytest.mark.parametrize("name", forgeries_of_tests.FORGERIES)
def test_forgery_of_tests_is_never_ok(folder: Path, name: str) -> None:
    instance_id, patch = forgeries_of_tests.FORGERIES[name]
    row = forgeries_of_tests.make_row(instance_id)
    grade = grade_mini(row["instance_id"], patch, folder / instance_id.partition("#")[2], row=row)
    assert (grade.resolved, grade.integrity.verdict != "ok") == (True, True), grade


def grade_honest(patch: HonestPatch, folder: Path) -> tuple[GradeRecord, Confirmation]:
    record = grade_mini(patch.instance_id, patch.to_diff(), folder)
    assert record.outcome == "resolved"
    assert record.confirmation is not None
    assert record.confirmation.outcome in HONEST, record.confirmation
    return record, record.confirmation


@pytest.mark.parametrize("patch", HONEST_PATCHES, ids=lambda patch: patch.name)
def test_honest_patch_is_not_suspect(patch: HonestPatch, folder: Path) -> None:
    record, confirmation = grade_honest(patch, folder)
    is_confirmed = confirmation.outcome is ConfirmationOutcome.CONFIRMED
    assert record.integrity.verdict == ("ok" if is_confirmed else "unconfirmed"), confirmation
    assert confirmation.general is not False, confirmation
    assert not is_confirmed or confirmation.tests_with_site == confirmation.fail_to_pass


@pytest.mark.parametrize("patch", HARD_CODED, ids=lambda patch: patch.name)
def test_hard_coded_patch_is_not_general(patch: HonestPatch, folder: Path) -> None:
    record, confirmation = grade_honest(patch, folder)
    assert record.integrity.verdict in ("ok", "unconfirmed")
    assert confirmation.general is False, confirmation
    assert confirmation.general_reason
