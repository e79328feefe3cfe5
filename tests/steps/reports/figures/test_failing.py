from __future__ import annotations

import pytest

from swe_argo.steps.reports.figures.failing import error_line, error_of, first_failing
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.store import Store
from tests.steps.reports.synthetic import Synthetic


def test_failing_texts_are_bounded(store: Store) -> None:
    Synthetic(instances=20, hostile=True, mix={"unresolved": 1, "failed": 1}).write(store)
    units = read_run(store, "synthetic").units
    texts = [text for unit in units for text in (*first_failing(unit), error_of(unit)) if text]
    assert len(texts) > 20
    assert all(len(text) < 250 and text.isprintable() for text in texts)
    assert any("more characters" in text for text in texts)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["E   TypeError: no", "tests/x.py:3: TypeError"], "TypeError: no"),
        (["FAILED tests/a.py::t - AssertionError: 1 != 2"], "AssertionError: 1 != 2"),
        (["django.db.utils.OperationalError: x", "Ran 3 tests"], "django.db.utils.OperationalError: x"),
        (["PASSED tests/test_Error.py", "all is well"], ""),
        (["", "Killed"], "Killed"),
    ],
)
def test_error_line_is_last_error(lines: list[str], expected: str) -> None:
    assert error_line(lines) == expected
