from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from swe_argo.steps.reports.comparison.compare import compare
from swe_argo.steps.reports.comparison.record import Comparison
from tests.steps.reports.views import LOCK, run_file, view

BEFORE = run_file("before", created_at="2026-11-19T22:04:11+00:00")
NOW = run_file("now")
WORDS = ["resolved", "unresolved", "empty_patch", "no_prediction", "failed", "not_run"]


def compared(before: dict[str, Any], now: dict[str, Any], **how: Any) -> Comparison:
    return compare(view(BEFORE, before, **how), view(NOW, now, **how))


def test_compare_places_instances_once() -> None:
    pairs = {f"i-{n}": words for n, words in enumerate(product(WORDS, WORDS))}
    before = {name: words[0] for name, words in pairs.items()} | {"old-1": "resolved"}
    now = {name: words[1] for name, words in pairs.items()} | {"new-1": "failed"}
    result = compared(before, now)
    for name, (was, became) in pairs.items():
        judged = "failed" not in (was, became) and "not_run" not in (was, became)
        assert (name in [u.instance_id for u in result.without_verdict]) is not judged
        assert (name in [m.instance_id for m in result.gained]) is (judged and was != "resolved" == became)
        assert (name in [m.instance_id for m in result.lost]) is (judged and was == "resolved" != became)
    assert result.only_before == ["old-1"]
    assert result.only_after == ["new-1"]
    assert result.common == 36
    assert result.judged == 16 == result.both + result.neither + len(result.gained) + len(result.lost)
    assert result.common == result.judged + len(result.without_verdict)


def test_failure_is_no_loss() -> None:
    result = compared({"a": "resolved", "b": "resolved"}, {"a": "resolved", "b": "failed"})
    assert result.lost == []
    assert (result.after.resolved, result.after.graded, result.after.total) == (1, 1, 2)
    assert [(u.instance_id, u.reason) for u in result.without_verdict] == [
        ("b", "image_pull: the registry does not answer")
    ]


def test_compare_scores_common_instances() -> None:
    result = compared({"a": "resolved", "gone": "resolved"}, {"a": "unresolved", "new": "resolved"})
    assert (result.before.resolved, result.before.total) == (1, 1)
    assert (result.after.resolved, result.after.total) == (0, 1)


def test_lost_instance_has_tests() -> None:
    tests = {"a": [f"t{n}" for n in range(30)]}
    (lost,) = compared({"a": "resolved"}, {"a": "unresolved"}, tests=tests).lost
    assert (lost.before, lost.after) == ("resolved", "unresolved")
    assert lost.failing_tests == [f"t{n}" for n in range(20)]
    assert lost.failing == 30


def test_compare_marks_equal_patches() -> None:
    before = view(BEFORE, {"a": "resolved", "b": "resolved"}, patches={"a": "aa", "b": "bb"})
    result = compare(before, view(NOW, {"a": "unresolved", "b": "unresolved"}, patches={"a": "aa", "b": "other"}))
    assert [loss.same_patch for loss in result.lost] == [True, False]
    assert not result.same_patches


def test_compare_uses_first_attempts() -> None:
    before = {f"i-{n}": ["resolved", "unresolved"] for n in range(10)}
    now = {f"i-{n}": ["unresolved", "resolved"] for n in range(9)} | {"i-9": ["resolved", "resolved"]}
    result = compared(before, now)
    assert (len(result.lost), len(result.gained)) == (9, 0)
    assert result.mean is not None
    assert (result.mean.before, result.mean.after) == (0.5, 0.55)
    assert result.mean.difference == pytest.approx(0.05)
    assert result.mean.low == 0.0
    assert 0.05 < result.mean.high <= 0.2


def test_compare_skips_failed_attempts() -> None:
    result = compared({"a": ["resolved", "failed"]}, {"a": ["failed", "unresolved"]})
    assert result.mean is not None
    assert (result.mean.before, result.mean.after) == (1.0, 0.0)
    assert result.judged == 0


def test_single_attempt_has_no_mean() -> None:
    assert compared({"a": "resolved"}, {"a": "resolved"}).mean is None
    nothing = compared({"a": "resolved"}, {"b": "resolved"})
    assert (nothing.common, nothing.before.rate, nothing.test.p) == (0, None, 1.0)


def test_comparison_round_trips() -> None:
    result = compared({"a": "resolved", "b": "failed"}, {"a": "unresolved", "b": "not_run"})
    assert Comparison.from_bytes(result.to_bytes()) == result


def changed(spec: dict[str, Any] | None = None, how: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    before = view(BEFORE, {"a": "resolved"})
    now = view(run_file("now", spec, **fields), {"a": "resolved"}, **(how or {}))
    return [(change.kind, change.title, change.before, change.after) for change in compare(before, now).changes]


def test_changes_ignore_name_and_time() -> None:
    assert changed() == []
    assert changed({"run_id": "x", "workers": 7, "retries": 0, "store": "elsewhere"}) == []


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"dataset": LOCK.model_copy(update={"revision": "d00d"})}, ("dataset", "Revision", "c104f840", "d00d")),
        (
            {"dataset": LOCK.model_copy(update={"sha256": "77" * 32})},
            ("dataset", "Rows", "500 (9f9f9f9f9f9f)", "500 (777777777777)"),
        ),
        ({"spec": {"agent": {"name": "replay", "hints": True}}}, ("wish", "agent.hints", "no", "yes")),
        ({"spec": {"agent": {"name": "replay", "max_steps": 60}}}, ("wish", "agent.max_steps", "not set", "60")),
        ({"spec": {"select": {"repos": ["x/y"]}}}, ("wish", "select.repos", "not set", "x/y")),
        ({"model": "lab/model-2"}, ("wish", "model", "lab/model-1", "lab/model-2")),
        ({"how": {"network": False}}, ("condition", "Tests' network", "open", "none")),
        ({"how": {"backend": "kubernetes"}}, ("condition", "Sandboxes", "docker, container", "kubernetes, container")),
        ({"versions": {"swe-argo": "0.2.0"}}, ("version", "swe-argo", "0.1.0", "0.2.0")),
    ],
)
def test_changes_name_both_values(now: dict[str, Any], message: tuple[str, ...]) -> None:
    assert message in changed(**now)


def test_changes_list_backend_once() -> None:
    changes = changed({"agent": {"name": "replay"}, "sandbox": {"backend": "kubernetes"}}, {"backend": "kubernetes"})
    assert [subject for _, subject, _, _ in changes] == ["Sandboxes"]


def test_changes_list_grading_versions() -> None:
    before = view(run_file("before"), {"a": "resolved"})
    now = view(run_file("now", versions={**NOW.versions, "swebench": "5.0.3"}), {"a": "resolved"})
    (change,) = compare(before, now).changes
    assert (change.title, change.before, change.after) == ("swebench", "5.0.2", "5.0.2 and 5.0.3")


def test_changes_compare_digests() -> None:
    before = view(BEFORE, dict.fromkeys("abcd", "resolved"), digests={"a": "sha256:1", "b": "sha256:2", "c": None})
    now = view(
        NOW,
        {"a": "resolved", "b": "resolved", "c": "resolved", "d": "failed"},
        digests={"a": "sha256:1", "b": "sha256:3"},
    )
    result = compare(before, now)
    assert [(item.instance_id, item.before, item.after) for item in result.images] == [("b", "sha256:2", "sha256:3")]
    assert result.images_unknown == 1  # c: the name alone is no proof; d: nothing ran now
