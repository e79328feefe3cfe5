from __future__ import annotations

import json
from typing import Any

from swe_argo.steps.reports.comparison.compare import compare
from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.messages.message import HEADER, SECTION, build_message
from tests.steps.reports.texts import HOSTILE
from tests.steps.reports.views import run_file, view

LINK = "https://argo.example/artifacts/runs/now/report/report.html"


def message_of(before: dict[str, str], now: dict[str, str], link: str = "", **how: Any) -> dict[str, Any]:
    old = view(run_file("before", created_at="2026-11-19T22:04:11+00:00"), before)
    new = view(run_file("now"), now, **how)
    return build_message(summarise(new), compare(old, new), link)


def sections(message: dict[str, Any]) -> list[str]:
    return [block["text"]["text"] for block in message["blocks"] if block["type"] == "section"]


def test_message_is_ordered() -> None:
    before = {"a": "resolved", "b": "unresolved", "c": "resolved"}
    message = message_of(
        before, {"a": "unresolved", "b": "resolved", "c": "failed"}, LINK, tests={"a": ["t_1", "t_2"]}, network=False
    )
    assert message["text"] == f"now: INVALID, no score: 1 of 3 units have no verdict. {LINK}"
    assert message["blocks"][0] == {
        "type": "header",
        "text": {"type": "plain_text", "text": "now: INVALID, no score: 1 of 3 units have no verdict."},
    }
    assert sections(message) == [
        "lab/model-1 on SWE-bench/SWE-bench_Verified (test); 1 without a verdict",
        "*Differences in set-up, before → now*\n• Tests' network: open → none",
        "before: 2 of 3 resolved (2 ok). now: 1 of 3 resolved (1 ok). "
        "now minus before: no score, now is not valid; 1 gained, 1 lost. "
        "1 gained and 1 lost of 2 instances with a "
        "verdict in both, each with the same patch in both runs: images, "
        "machines or tests caused the change, not the agent (McNemar's exact test, p = 1).",
        "*Lost, 1*\n• `a` resolved → unresolved; same patch: `t_1` and 1 more",
        "*Gained, 1*\n• `b` unresolved → resolved; same patch",
        "*Without a verdict, 1*\n• `c` resolved → infrastructure; image_pull: the registry does not answer",
        "*Notes*\n• This run is invalid: 1 of 3 units (33.3 %) have no verdict, more than 10.0 %. Start the same "
        "run again to complete it.\n• 1 unit failed without a verdict: image_pull 1.",
        f"<{LINK}|Open the report>",
    ]


def test_message_states_hints_with_score() -> None:
    run = run_file(spec={"agent": {"name": "r2egym", "model": "openai/m", "hints": True}})
    text = sections(build_message(summarise(view(run, {"a": "resolved"})), None))[-1]
    assert text == (
        "*Notes*\n• r2egym asked openai/m, temperature 0.\n• The agent was shown the discussion of each issue (hints)."
    )


def test_first_run_has_no_comparison() -> None:
    message = build_message(summarise(view(run_file("now"), {"a": "resolved"})), None)
    assert message["text"] == "now: 1 of 1 resolved (1 ok)"
    assert sections(message)[-1] == "Not compared with an earlier run."


def test_message_respects_slack_limits() -> None:
    ids = [f"{'x' * 100}-{n}" for n in range(500)]
    tests = {instance_id: ["t" * 5000] * 30 for instance_id in ids}
    message = message_of(dict.fromkeys(ids, "resolved"), dict.fromkeys(ids, "unresolved"), tests=tests)
    assert len(message["blocks"]) <= 50
    assert all(len(text) <= SECTION for text in sections(message))
    assert len(message["blocks"][0]["text"]["text"]) <= HEADER
    lost = sections(message)[-1]
    assert lost.startswith("*Lost, 500*")
    listed = lost.count("•")
    assert 5 < listed < 15
    assert lost.endswith(f"\nand {500 - listed} more")


def test_message_escapes_hostile_names() -> None:
    now = run_file("now", model=HOSTILE)
    views = [
        view(run_file("before"), {"a": "resolved"}),
        view(now, {"a": "unresolved"}, tests={"a": ["<!channel>" + HOSTILE + "`"]}),
    ]
    message = build_message(summarise(views[1]), compare(views[0], views[1]))
    text = json.dumps(message)
    assert "<" not in text.replace("&lt;", "")
    assert "&lt;!channel&gt;" in text
    assert "\\u001b" not in text
