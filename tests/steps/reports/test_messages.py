"""A run in a chat message and in the terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_argo.steps.reports.comparison.compare import compare
from swe_argo.steps.reports.figures.compute import summarise
from swe_argo.steps.reports.labels import standing_labels
from swe_argo.steps.reports.reading import read_run
from swe_argo.steps.reports.terminal import summary_lines
from swe_argo.steps.reports.webhook import HEADER, SECTION, build_message
from swe_argo.steps.store import Store
from tests.steps.reports.stored_runs import run_file, stored_run
from tests.steps.reports.synthetic import Synthetic
from tests.steps.reports.trajectories import HOSTILE

LINK = "https://argo.example/artifacts/runs/now/report/report.html"


def message_of(before: dict[str, str], now: dict[str, str], link: str = "", **how: Any) -> dict[str, Any]:
    old = stored_run(run_file("before", created_at="2026-11-19T22:04:11+00:00"), before)
    new = stored_run(run_file("now", **how.pop("fields", {})), now, **how)
    return build_message(summarise(new), compare(old, new), link)


def sections(message: dict[str, Any]) -> list[str]:
    return [block["text"]["text"] for block in message["blocks"] if block["type"] == "section"]


def test_message_is_ordered() -> None:
    before = {"a": "resolved", "b": "unresolved", "c": "resolved"}
    now = {"a": "unresolved", "b": "resolved", "c": "failed"}
    message = message_of(before, now, LINK, tests={"a": ["t_1", "t_2"]}, network=False)
    title = "now: INVALID, no score: 1 of 3 units have no verdict."
    assert message["text"] == f"{title} {LINK}"
    assert message["blocks"][0] == {"type": "header", "text": {"type": "plain_text", "text": title}}
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


def test_message_without_comparison() -> None:
    spec = {"agent": {"name": "r2egym", "model": "openai/m", "hints": True}}
    message = build_message(summarise(stored_run(run_file(spec=spec), {"a": "resolved"})), None)
    assert message["text"] == "now: 1 of 1 resolved (1 ok)"
    notes = "• r2egym asked openai/m, temperature 0.\n• The agent was shown the discussion of each issue (hints)."
    assert sections(message)[1:] == ["Not compared with an earlier run.", f"*Notes*\n{notes}"]


def test_message_respects_slack_limits() -> None:
    ids = [f"{'x' * 100}-{n}" for n in range(500)]
    tests = {instance_id: ["t" * 5000] * 30 for instance_id in ids}
    message = message_of(dict.fromkeys(ids, "resolved"), dict.fromkeys(ids, "unresolved"), tests=tests)
    assert len(message["blocks"]) <= 50
    assert all(len(text) <= SECTION for text in sections(message))
    assert len(message["blocks"][0]["text"]["text"]) <= HEADER
    lost = sections(message)[-1]
    listed = lost.count("•")
    assert 5 < listed < 15
    assert lost.startswith("*Lost, 500*")
    assert lost.endswith(f"\nand {500 - listed} more")


def test_message_escapes_hostile_names() -> None:
    tests = {"a": ["<!channel>" + HOSTILE + "`"]}
    message = message_of({"a": "resolved"}, {"a": "unresolved"}, tests=tests, fields={"model": HOSTILE})
    text = json.dumps(message)
    assert "<" not in text.replace("&lt;", "")
    assert "&lt;!channel&gt;" in text
    assert "\\u001b" not in text


LARGE = {
    "instances": 100,
    "attempts": 2,
    "suspects": 0.5,
    "model": "an-organisation-with-a-long-name/" + "m" * 120,
    "spec": {"grading": {"timeout_s": 60, "network": False}, "agent": {"name": "r2egym", "hints": True}},
}
KINDS = ("gold", "idle", "given", "replay")


def lines_of(store: Store, failures: dict[str, int] | None = None, **spec: Any) -> list[str]:
    Synthetic(**{"log_lines": 1} | spec).write(store)
    summary = summarise(read_run(store, "synthetic"))
    return summary_lines(summary.model_copy(update={"failures": failures} if failures else {}))


@pytest.mark.parametrize(
    "spec",
    [{}, {"instances": 0}, {"mix": {"failed": 1}}, {"hostile": True}, LARGE, *({"agent": kind} for kind in KINDS)],
)
def test_summary_lines_fit_terminal(store: Store, spec: dict[str, Any]) -> None:
    lines = lines_of(store, **spec)
    assert 2 <= len(lines) <= 12
    assert all(len(line) <= 80 and line.isprintable() for line in lines), lines
    if spec is LARGE:
        assert len(lines) == 12
        assert lines[-2] == "! ... 6 caveats in the report"


def test_summary_lines_end_with_report(store: Store) -> None:
    lines = lines_of(store, instances=4, mix={"failed": 1})
    assert lines[-1] == "resolved 0/4, infra 4, report: runs/synthetic/report/report.html"
    endpoint = {"model": 1, "model_access": 1, "sandbox_lost": 2}
    lines = lines_of(store, endpoint, instances=4, mix={"failed": 1})
    assert lines[-1].startswith("resolved 0/4, infra 2, model endpoint 2, report: ")
    assert "infrastructure 2 and model endpoint 2" in lines


@pytest.mark.parametrize(
    ("failures", "name"),
    [
        ({}, "Infrastructure"),
        ({"node_lost": 1}, "Infrastructure"),
        ({"model": 2, "model_access": 1}, "Model endpoint"),
        ({"model": 1, "node_lost": 1}, "Infrastructure and model endpoint"),
    ],
)
def test_labels_name_origin_of_failures(failures: dict[str, int], name: str) -> None:
    assert standing_labels(failures)["failed"].name == name


@pytest.mark.parametrize(("attempts", "rate"), [(1, "100 % resolved, 95 %"), (2, "pass@1 100 % over 2 attempts, 95 %")])
def test_summary_lines_count_all_attempts(store: Store, attempts: int, rate: str) -> None:
    assert rate in "\n".join(lines_of(store, instances=4, attempts=attempts, mix={"resolved": 1}))
