from __future__ import annotations

import json
from typing import Any

from swe_argo.steps.reports.comparison.compare import compare
from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.messages.message import HEADER, SECTION, build_message
from tests.steps.reports.texts import HOSTILE
from tests.steps.reports.views import run_file, view

LINK = "https://argo.example/artifacts/runs/now/report/report.html"


def made(before: dict[str, str], now: dict[str, str], link: str = "", **how: Any) -> dict[str, Any]:
    old = view(run_file("before", created_at="2026-11-19T22:04:11+00:00"), before)
    new = view(run_file("now"), now, **how)
    return build_message(summarise(new), compare(old, new), link)


def sections(sent: dict[str, Any]) -> list[str]:
    return [block["text"]["text"] for block in sent["blocks"] if block["type"] == "section"]


def test_the_message_says_what_changed_then_the_score_then_what_was_lost() -> None:
    before = {"a": "resolved", "b": "unresolved", "c": "resolved"}
    sent = made(
        before, {"a": "unresolved", "b": "resolved", "c": "failed"}, LINK, tests={"a": ["t_1", "t_2"]}, network=False
    )
    assert sent["text"] == f"now: INVALID, no score: 1 of 3 units without a verdict. {LINK}"
    assert sent["blocks"][0] == {
        "type": "header",
        "text": {"type": "plain_text", "text": "now: INVALID, no score: 1 of 3 units without a verdict."},
    }
    assert sections(sent) == [
        "lab/model-1 on SWE-bench/SWE-bench_Verified (test); 1 without a verdict",
        "*Differences in set-up, before → now*\n• Tests' network: open → none",
        "before: 2 of 3 resolved (2 ok). now: 1 of 3 resolved (1 ok). "
        "now minus before: no score, now is not valid; 1 gained, 1 lost. "
        "1 gained and 1 lost of 2 instances with a "
        "verdict in both, each on the same patch in both runs: it was not the agent that moved them, but images, "
        "machines or tests (McNemar's exact test, p = 1).",
        "*Lost, 1*\n• `a` resolved → unresolved; same patch: `t_1` and 1 more",
        "*Gained, 1*\n• `b` unresolved → resolved; same patch",
        "*Without a verdict, 1*\n• `c` resolved → infrastructure; image_pull: the registry does not answer",
        "*To be known*\n• This run is invalid: 1 of 3 units (33.3 %) without a verdict, more than 10.0 %. The same run "
        "again does what is missing.\n• 1 unit failed without a verdict: image_pull 1.",
        f"<{LINK}|Open the report>",
    ]


def test_hints_are_said_where_the_score_is_said() -> None:
    run = run_file(spec={"agent": {"name": "r2egym", "model": "openai/m", "hints": True}})
    said = sections(build_message(summarise(view(run, {"a": "resolved"})), None))[-1]
    assert said == (
        "*To be known*\n• r2egym asked openai/m, temperature 0.\n"
        "• The agent was shown the discussion of each issue (hints)."
    )


def test_a_first_run_says_that_there_is_nothing_to_compare_with() -> None:
    sent = build_message(summarise(view(run_file("now"), {"a": "resolved"})), None)
    assert sent["text"] == "now: 1 of 1 resolved (1 ok)"
    assert sections(sent)[-1] == "Not compared with an earlier run."


def test_slacks_limits_hold_however_much_was_lost() -> None:
    ids = [f"{'x' * 100}-{n}" for n in range(500)]
    tests = {one: ["t" * 5000] * 30 for one in ids}
    sent = made(dict.fromkeys(ids, "resolved"), dict.fromkeys(ids, "unresolved"), tests=tests)
    assert len(sent["blocks"]) <= 50
    assert all(len(text) <= SECTION for text in sections(sent))
    assert len(sent["blocks"][0]["text"]["text"]) <= HEADER
    lost = sections(sent)[-1]
    assert lost.startswith("*Lost, 500*")
    named = lost.count("•")
    assert 5 < named < 15
    assert lost.endswith(f"\nand {500 - named} more")


def test_hostile_names_are_no_markup() -> None:
    now = run_file("now", model=HOSTILE)
    views = [
        view(run_file("before"), {"a": "resolved"}),
        view(now, {"a": "unresolved"}, tests={"a": ["<!channel>" + HOSTILE + "`"]}),
    ]
    sent = build_message(summarise(views[1]), compare(views[0], views[1]))
    shown = json.dumps(sent)
    assert "<" not in shown.replace("&lt;", "")
    assert "&lt;!channel&gt;" in shown
    assert "\\u001b" not in shown
