from __future__ import annotations

import pytest

from swe_argo.steps.reports.page.unit_rows import make_rows, row_columns
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.store import Store
from tests.steps.reports.synthetic import Synthetic


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"priced": True}, ["f2p", "p2p", "time", "cost"]),
        ({"priced": False}, ["f2p", "p2p", "time", "tokens"]),
        ({"mix": {"not_run": 1}}, []),
    ],
)
def test_empty_columns_are_hidden(store: Store, fields: dict[str, object], names: list[str]) -> None:
    Synthetic(instances=6, **fields).write(store)  # type: ignore[arg-type]
    assert [column.name for column in row_columns(make_rows(read_run(store, "synthetic")))] == names
