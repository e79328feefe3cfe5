from __future__ import annotations

from typing import Any

import pytest

from swe_argo.steps.reports.comparison.compare import compare
from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.comparison.view import view_comparison
from swe_argo.steps.reports.messages.terminal import comparison_lines
from tests.steps.reports.texts import HOSTILE
from tests.steps.reports.views import LOCK, run_file, view


def compared(
    before: dict[str, Any], now: dict[str, Any], fields: dict[str, Any] | None = None, **how: Any
) -> Comparison:
    old = view(run_file("monday", created_at="2026-11-19T22:04:11+00:00"), before)
    patches = {instance_id: f"{n:x}" for n, instance_id in enumerate(now)}
    return compare(old, view(run_file("tuesday", **(fields or {})), now, **({"patches": patches} | how)))


def sides(gained: int, lost: int, both: int = 10) -> Comparison:
    ids = [f"i-{n}" for n in range(gained + lost + both)]
    before = ["unresolved"] * gained + ["resolved"] * (lost + both)
    now = ["resolved"] * gained + ["unresolved"] * lost + ["resolved"] * both
    return compared(dict(zip(ids, before, strict=True)), dict(zip(ids, now, strict=True)))


@pytest.mark.parametrize(
    ("gained", "lost", "words"),
    [
        (0, 0, "Of 10 instances with a verdict in both runs, none was gained or lost."),
        (
            1,
            3,
            "1 gained and 3 lost of 14 instances with a verdict in both: too few to rule out chance "
            "(McNemar's exact test, p = 0.62; that needs at least 6).",
        ),
        (
            3,
            5,
            "3 gained and 5 lost of 18 instances with a verdict in both: chance alone can explain this "
            "(McNemar's exact test, p = 0.73).",
        ),
        (
            6,
            16,
            "6 gained and 16 lost of 32 instances with a verdict in both: chance alone can explain this "
            "(McNemar's exact test, p = 0.052).",
        ),
        (
            0,
            6,
            "0 gained and 6 lost of 16 instances with a verdict in both: more than chance alone explains "
            "(McNemar's exact test, p = 0.031).",
        ),
        (
            2,
            30,
            "2 gained and 30 lost of 42 instances with a verdict in both: more than chance alone explains "
            "(McNemar's exact test, p < 0.001).",
        ),
    ],
)
def test_significance_is_in_plain_words(gained: int, lost: int, words: str) -> None:
    assert view_comparison(sides(gained, lost)).significance == words


def test_disjoint_runs_are_explained() -> None:
    assert "the runs cannot be compared" in view_comparison(compared({"a": "failed"}, {"a": "resolved"})).significance
    apart = view_comparison(compared({"a": "resolved"}, {"b": "resolved"}))
    assert apart.headline == "The two runs have no instance in common."
    assert apart.significance == ""
    assert apart.changes == ["Instances: 0 in both, 1 only in monday and 1 only in tuesday"]


def test_comparison_shows_mean() -> None:
    result = compared({"a": ["resolved", "unresolved"]}, {"a": ["resolved", "resolved"]})
    assert view_comparison(result).means == (
        "pass@1 over all attempts at 1 instance: monday 50.0 %, tuesday 100 %; tuesday minus monday: +50.0 points, "
        "95 % interval +50.0 to +50.0. Gains and losses count first attempts."
    )


def test_text_begins_with_changes() -> None:
    before = {"a": "resolved", "b": "resolved", "c": "unresolved", "d": "resolved", "gone": "resolved"}
    now = {"a": "resolved", "b": "tests_timed_out", "c": "resolved", "d": "not_run"}
    fields = {"dataset": LOCK.model_copy(update={"revision": "d00d", "rows": 4}), "versions": {"swebench": "5.0.3"}}
    digests = {"a": "sha256:" + "d" * 64}
    result = compared(before, now, fields, digests=digests, tests={"b": ["t_1", "t_2", "t_3", "t_4", "t_5"]})
    assert comparison_lines(result) == [
        "tuesday compared with monday (planned 2026-11-19 22:04 UTC)",
        "",
        "Differences in set-up, monday → tuesday:",
        "  Revision: c104f840 → d00d",
        "  Rows: 500 (9f9f9f9f9f9f) → 4 (9f9f9f9f9f9f)",
        "  Instances: 4 in both, 1 only in monday",
        "  Images of 1 instance: a (cccccccccccc → dddddddddddd)",
        "  swe-argo: 0.1.0 → unknown",
        "  swebench: 5.0.2 → 5.0.2 and 5.0.3",
        "  Python: 3.11.9 → unknown",
        "  Code: 90710df0c2a1 → unknown",
        "  Platform: linux-x86_64 → unknown",
        "",
        "monday: 3 of 4 resolved (3 ok). tuesday: 2 of 4 resolved (2 ok). "
        "tuesday minus monday: no score, tuesday is not valid; 1 gained, 1 lost.",
        "1 gained and 1 lost of 3 instances with a verdict in both: too few to rule out chance "
        "(McNemar's exact test, p = 1; that needs at least 6).",
        "",
        "Lost, 1:",
        "  b: resolved → timed out",
        "      t_1",
        "      t_2",
        "      t_3",
        "      and 2 more tests",
        "",
        "Gained, 1:",
        "  c: unresolved → resolved",
        "",
        "Without a verdict, 1:",
        "  d: resolved → not run",
        "",
        "Only in monday, 1:",
        "  gone",
    ]


def test_equal_runs_have_short_text() -> None:
    unchanged = compared({"a": "resolved"}, {"a": "resolved"})
    assert comparison_lines(unchanged)[2:] == [
        "No known difference in set-up: rows, images, versions, spec and machines are the same as in monday.",
        "",
        "monday: 1 of 1 resolved (100 %; 1 ok). tuesday: 1 of 1 resolved (100 %; 1 ok). "
        "tuesday minus monday: +0.0 points; 0 gained, 0 lost.",
        "Of 1 instance with a verdict in both runs, none was gained or lost.",
    ]


def test_comparison_bounds_lists() -> None:
    lines = comparison_lines(sides(0, 30), most=5)
    assert "Lost, 30:" in lines
    assert lines[-1] == "  and 25 more"


def test_comparison_escapes_values() -> None:
    result = compared({"a": "resolved"}, {"a": "unresolved"}, {"model": HOSTILE * 50}, tests={"a": [HOSTILE * 50]})
    assert all(line.isprintable() and len(line) < 400 for line in comparison_lines(result))
    assert all(len(name) < 200 for name in view_comparison(result).moved[0].lines[0].tests)
