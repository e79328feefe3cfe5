"""Forgeries, graded by the real step: patches that fix nothing and are resolved. None is ``ok``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.steps.grading import forgeries_of_runs, forgeries_of_tests
from tests.steps.grading.attacks import ATTACKS, TARGET
from tests.steps.grading.grade_mini import grade_mini

GUESSES = ("single: a coin", "guesses", "crashes now and then")
"""These pass now and then, as often as the stored chance says: see ``test_confirmation``."""
NEAR_FIX = "single: leap days that exist"
"""Its rule (every twelfth month, the last day that exists, the first as given) is what the issue asks for."""

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("forgeries")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("forged")


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_never_ok(folder: Path, name: str) -> None:
    grade = grade_mini(TARGET, ATTACKS[name], folder)
    assert not grade.resolved or grade.integrity.verdict != "ok", grade


@pytest.mark.parametrize("name", [name for name in forgeries_of_runs.FORGERIES if not name.startswith(GUESSES)])
def test_forgery_of_runs_is_never_ok(folder: Path, name: str) -> None:
    _, instance_id, patch = forgeries_of_runs.FORGERIES[name]
    options = next((choice for start, choice in forgeries_of_runs.OPTIONS.items() if name.startswith(start)), None)
    grade = grade_mini(instance_id, patch, folder, options=options)
    assert grade.resolved
    assert grade.integrity.verdict != "ok", grade


@pytest.mark.parametrize(
    "name", [name for name in forgeries_of_tests.FORGERIES if not name.startswith((*GUESSES, NEAR_FIX))]
)
def test_forgery_of_tests_is_never_ok(folder: Path, name: str) -> None:
    _, instance_id, patch = forgeries_of_tests.FORGERIES[name]
    row = forgeries_of_tests.make_row(instance_id)
    place = folder / instance_id.partition("#")[2]
    grade = grade_mini(row["instance_id"], patch, place, row=row)
    assert grade.resolved
    assert grade.integrity.verdict != "ok", grade
