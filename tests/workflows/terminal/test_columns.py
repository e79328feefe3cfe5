from __future__ import annotations

from swe_argo.workflows.terminal.columns import columns


def test_columns_are_as_wide_as_their_widest_and_nothing_is_cut() -> None:
    name = "a-run-with-a-name-that-no-terminal-is-wide-enough-for-in-one-piece" * 2
    assert columns([["run", "n", "x"], [name, "10", ""]], right=(1,)) == [
        f"run{' ' * (len(name) - 3)}   n  x",
        f"{name}  10",
    ]


def test_what_takes_two_places_counts_as_two() -> None:
    assert columns([["東京", "a"], ["x", "b"]]) == ["東京  a", "x     b"]
