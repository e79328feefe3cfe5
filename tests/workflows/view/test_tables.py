from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from swe_argo.workflows.view.tables import PAGE_LINES, Column, ShownTable, TableState, show_table
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.view.server import viewing

COLUMNS = (
    Column[int]("number", "Number", lambda line: line),
    Column[int]("cost", "Cost", lambda line: line // 150 or None, optional=True),
)


def table_of(number: int, state: TableState | None = None) -> ShownTable[int]:
    return show_table(range(number), state or TableState(), COLUMNS, (), str)


@pytest.mark.parametrize(("number", "has_cost"), [(150, False), (151, True)])
def test_empty_column_is_hidden(number: int, has_cost: bool) -> None:
    assert table_of(number).has("cost") == has_cost
    assert table_of(number, TableState(words="0")).has("cost") == has_cost, "a filter does not change the columns"


def test_table_has_pages_of_100_lines() -> None:
    assert [table_of(number).pages for number in (PAGE_LINES, PAGE_LINES + 1)] == [1, 2]
    assert PAGE_LINES == 100


def test_unpriced_pages_have_no_cost(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    for number, name in enumerate(("a", "b")):
        created_at = f"2026-11-1{number}T22:00:00Z"
        Synthetic(name, PAGE_LINES + 10, priced=False, log_lines=1, created_at=created_at).write(store)
        write_report(store, name)
    with viewing(store) as address:
        pages = [address.get(path).text for path in ("/", "/runs/a", "/compare?run=a&run=b", "/trend?run=a")]
    assert [">Cost<" in page for page in pages] == [False] * 4
    assert pages[1].count("page 1 of 2") == 2, "a pager above the table and one below"
