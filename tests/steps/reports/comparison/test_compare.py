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


def test_every_instance_stands_in_exactly_one_place() -> None:
    pairs = {f"i-{n}": words for n, words in enumerate(product(WORDS, WORDS))}
    before = {one: words[0] for one, words in pairs.items()} | {"old-1": "resolved"}
    now = {one: words[1] for one, words in pairs.items()} | {"new-1": "failed"}
    result = compared(before, now)
    for one, (was, became) in pairs.items():
        judged = "failed" not in (was, became) and "not_run" not in (was, became)
        assert (one in [u.instance_id for u in result.without_verdict]) is not judged
        assert (one in [m.instance_id for m in result.gained]) is (judged and was != "resolved" == became)
        assert (one in [m.instance_id for m in result.lost]) is (judged and was == "resolved" != became)
    assert result.only_before == ["old-1"]
    assert result.only_after == ["new-1"]
    assert result.common == 36
    assert result.judged == 16 == result.both + result.neither + len(result.gained) + len(result.lost)
    assert result.common == result.judged + len(result.without_verdict)


def test_a_failure_of_the_world_is_never_a_loss_but_stays_in_the_denominator() -> None:
    result = compared({"a": "resolved", "b": "resolved"}, {"a": "resolved", "b": "failed"})
    assert result.lost == []
    assert (result.after.resolved, result.after.graded, result.after.total) == (1, 1, 2)
    assert [(u.instance_id, u.reason) for u in result.without_verdict] == [
        ("b", "image_pull: the registry does not answer")
    ]


def test_instances_of_one_run_only_do_not_count_in_the_score() -> None:
    result = compared({"a": "resolved", "gone": "resolved"}, {"a": "unresolved", "new": "resolved"})
    assert (result.before.resolved, result.before.total) == (1, 1)
    assert (result.after.resolved, result.after.total) == (0, 1)


def test_a_lost_instance_has_both_outcomes_and_the_tests_that_fail_now() -> None:
    tests = {"a": [f"t{n}" for n in range(30)]}
    (lost,) = compared({"a": "resolved"}, {"a": "unresolved"}, tests=tests).lost
    assert (lost.before, lost.after) == ("resolved", "unresolved")
    assert lost.failing_tests == [f"t{n}" for n in range(20)]
    assert lost.failing == 30


def test_the_same_patch_is_marked_where_both_runs_graded_it() -> None:
    before = view(BEFORE, {"a": "resolved", "b": "resolved"}, patches={"a": "aa", "b": "bb"})
    result = compare(before, view(NOW, {"a": "unresolved", "b": "unresolved"}, patches={"a": "aa", "b": "other"}))
    assert [one.same_patch for one in result.lost] == [True, False]
    assert not result.same_patches


def test_several_attempts_compare_by_the_first_and_by_the_mean() -> None:
    before = {f"i-{n}": ["resolved", "unresolved"] for n in range(10)}
    now = {f"i-{n}": ["unresolved", "resolved"] for n in range(9)} | {"i-9": ["resolved", "resolved"]}
    result = compared(before, now)
    assert (len(result.lost), len(result.gained)) == (9, 0)
    assert result.mean is not None
    assert (result.mean.before, result.mean.after) == (0.5, 0.55)
    assert result.mean.difference == pytest.approx(0.05)
    assert result.mean.low == 0.0
    assert 0.05 < result.mean.high <= 0.2


def test_an_attempt_without_a_verdict_is_no_attempt() -> None:
    result = compared({"a": ["resolved", "failed"]}, {"a": ["failed", "unresolved"]})
    assert result.mean is not None
    assert (result.mean.before, result.mean.after) == (1.0, 0.0)
    assert result.judged == 0


def test_one_attempt_has_no_mean_and_nothing_in_common_is_no_error() -> None:
    assert compared({"a": "resolved"}, {"a": "resolved"}).mean is None
    nothing = compared({"a": "resolved"}, {"b": "resolved"})
    assert (nothing.common, nothing.before.rate, nothing.test.p) == (0, None, 1.0)


def test_it_survives_the_way_through_its_file() -> None:
    result = compared({"a": "resolved", "b": "failed"}, {"a": "unresolved", "b": "not_run"})
    assert Comparison.from_bytes(result.to_bytes()) == result


def changed(spec: dict[str, Any] | None = None, how: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    before = view(BEFORE, {"a": "resolved"})
    now = view(run_file("now", spec, **fields), {"a": "resolved"}, **(how or {}))
    return [(one.kind, one.what, one.before, one.after) for one in compare(before, now).changes]


def test_nothing_changed_between_runs_that_differ_in_name_and_time_alone() -> None:
    assert changed() == []
    assert changed({"run_id": "x", "workers": 7, "retries": 0, "store": "elsewhere"}) == []


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"dataset": LOCK.model_copy(update={"revision": "d00d"})}, ("dataset", "Revision", "c104f840", "d00d")),
        (
            {"dataset": LOCK.model_copy(update={"sha256": "77" * 32})},
            ("dataset", "Rows", "500 (9f9f9f9f9f9f)", "500 (777777777777)"),
        ),
        ({"spec": {"agent": {"name": "replay", "hints": True}}}, ("wish", "agent.hints", "no", "yes")),
        ({"spec": {"agent": {"name": "replay", "max_steps": 60}}}, ("wish", "agent.max_steps", "not given", "60")),
        ({"spec": {"select": {"repos": ["x/y"]}}}, ("wish", "select.repos", "not given", "x/y")),
        ({"model": "lab/model-2"}, ("wish", "model", "lab/model-1", "lab/model-2")),
        ({"how": {"network": False}}, ("condition", "Tests' network", "open", "none")),
        ({"how": {"backend": "kubernetes"}}, ("condition", "Sandboxes", "docker, container", "kubernetes, container")),
        ({"versions": {"swe-argo": "0.2.0"}}, ("version", "swe-argo", "0.1.0", "0.2.0")),
    ],
)
def test_a_change_before_any_score_is_named_with_both_values(now: dict[str, Any], told: tuple[str, ...]) -> None:
    assert told in changed(**now)


def test_a_field_of_the_spec_is_not_told_again_where_the_machines_recorded_it() -> None:
    told = changed({"agent": {"name": "replay"}, "sandbox": {"backend": "kubernetes"}}, {"backend": "kubernetes"})
    assert [what for _, what, _, _ in told] == ["Sandboxes"]


def test_a_run_that_was_graded_by_two_versions_says_both() -> None:
    before = view(run_file("before"), {"a": "resolved"})
    now = view(run_file("now", versions={**NOW.versions, "swebench": "5.0.3"}), {"a": "resolved"})
    (change,) = compare(before, now).changes
    assert (change.what, change.before, change.after) == ("swebench", "5.0.2", "5.0.2 and 5.0.3")


def test_an_image_is_another_by_its_digest_and_unknown_without_one() -> None:
    before = view(BEFORE, dict.fromkeys("abcd", "resolved"), digests={"a": "sha256:1", "b": "sha256:2", "c": None})
    now = view(
        NOW,
        {"a": "resolved", "b": "resolved", "c": "resolved", "d": "failed"},
        digests={"a": "sha256:1", "b": "sha256:3"},
    )
    result = compare(before, now)
    assert [(one.instance_id, one.before, one.after) for one in result.images] == [("b", "sha256:2", "sha256:3")]
    assert result.images_unknown == 1  # c: the name alone is no proof; d: nothing ran now
