"""Filters and order of a table, encoded in the URL: ``?q=django&outcome=unresolved&sort=-cost``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

L = TypeVar("L")
PAGE_LINES = 100


@dataclass(frozen=True)
class Column(Generic[L]):
    """A sortable column."""

    name: str
    """Name in the URL."""
    title: str
    value: Callable[[L], Any]
    """The sort key; None comes last in both directions."""
    classes: str = ""
    meaning: str = ""
    optional: bool = False
    """Whether the column is hidden if it is empty for all lines."""


@dataclass(frozen=True)
class Filter(Generic[L]):
    """A filter by the values that occur in the lines."""

    name: str
    title: str
    value: Callable[[L], str | tuple[str, ...]]
    """A value, or several."""

    def values(self, line: L) -> tuple[str, ...]:
        """Return the values of a line; one empty text if it has none."""
        value = self.value(line)
        return (value,) if isinstance(value, str) else value or ("",)


@dataclass(frozen=True)
class TableState:
    """The state of a table: search words, filters, order and page."""

    words: str = ""
    picks: Mapping[str, str] = field(default_factory=dict)
    """Filter -> chosen value."""
    sort: str = ""
    falling: bool = False
    page: int = 1

    def address(self, **changes: str) -> str:
        """Return the query with ``changes`` to ``sort``, ``page`` or a named filter; by default for the first page."""
        order = f"{'-' if self.falling else ''}{self.sort}"
        values = {"q": self.words, **dict(self.picks), "sort": order} | changes
        return "?" + urlencode({name: value for name, value in values.items() if value})

    def order(self, name: str) -> str:
        """Return the query that sorts by a column, or reverses the order if it sorts by that already."""
        turned = self.sort == name and not self.falling
        return self.address(sort=f"{'-' if turned else ''}{name}")


@dataclass(frozen=True)
class ShownTable(Generic[L]):
    """The part of a table to show."""

    state: TableState
    columns: Sequence[Column[L]]
    filters: Sequence[tuple[Filter[L], list[str]]]
    """The filters with their choices: at least two, or the chosen one."""
    lines: list[L]
    """Lines of this page."""
    found: int
    total: int
    pages: int

    def has(self, name: str) -> bool:
        """Return whether a column is shown."""
        return any(column.name == name for column in self.columns)


def read_state(query: QueryParams, columns: Sequence[Column[L]], filters: Sequence[Filter[L]]) -> TableState:
    """Parse the query; ignore unknown names and values, which may be from another version."""
    sort = query.get("sort", "")
    name = sort.removeprefix("-")
    known = any(column.name == name for column in columns)
    return TableState(
        words=query.get("q", ""),
        picks={each.name: query[each.name] for each in filters if query.get(each.name)},
        sort=name if known else "",
        falling=known and sort.startswith("-"),
        page=read_page(query.get("page", ""), default=1),
    )


def read_page(text: str, *, default: int) -> int:
    """Parse a page number from the URL; return the default if the text is not a number."""
    return int(text) if text.isdecimal() and len(text) < 6 else default


def show_table(
    lines: Sequence[L],
    state: TableState,
    columns: Sequence[Column[L]],
    filters: Sequence[Filter[L]],
    text: Callable[[L], str],
) -> ShownTable[L]:
    """Filter and sort the lines and take one page. ``text`` returns the lower-case text for the search."""
    words = state.words.lower().split()
    wanted = [(each.values, state.picks[each.name]) for each in filters if each.name in state.picks]
    found = [
        line
        for line in lines
        if all(pick in values(line) for values, pick in wanted) and (not words or _has(text(line), words))
    ]
    column = next((column for column in columns if column.name == state.sort), None)
    if column is not None:
        known = [line for line in found if column.value(line) is not None]
        rest = [line for line in found if column.value(line) is None]
        found = [*sorted(known, key=column.value, reverse=state.falling), *rest]
    pages = max(1, -(-len(found) // PAGE_LINES))
    page = min(max(1, state.page), pages)
    choices = [(each, _choices(each, lines, state)) for each in filters]
    return ShownTable(
        state=replace(state, page=page),
        columns=[one for one in columns if not one.optional or any(map(one.value, lines))],
        filters=[(each, names) for each, names in choices if len(names) > 1 or each.name in state.picks],
        lines=found[(page - 1) * PAGE_LINES : page * PAGE_LINES],
        found=len(found),
        total=len(lines),
        pages=pages,
    )


def _choices(each: Filter[L], lines: Iterable[L], state: TableState) -> list[str]:
    chosen = {state.picks[each.name]} if each.name in state.picks else set()
    choices = {value for line in lines for value in each.values(line)} | chosen
    return sorted(choices, key=lambda choice: (len(choice) if choice.isdecimal() else 0, choice.lower()))


def _has(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)
