from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.run_spec import SelectSpec
from swe_argo.steps.datasets.selection import select
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.family import Row
from swe_argo.steps.families.rows import normalise
from tests.steps.datasets.sample_rows import row

ROWS = [
    normalise(row(each, repo=each.split("-")[0].replace("__", "/")), "made")
    for each in ("b__b-3", "a__a-1", "b__b-1", "c__c-10", "a__a-2", "c__c-1")
]


def _ids(rows: list[Row]) -> list[str]:
    return [each["instance_id"] for each in rows]


def _select(**spec: object) -> list[str]:
    rows, notices = select(ROWS, SelectSpec.model_validate(spec))
    assert notices == []
    return _ids(rows)


def test_without_a_wish_every_row_comes_in_the_order_of_the_dataset() -> None:
    assert _select() == _ids(ROWS)


def test_ids_come_in_the_order_of_the_dataset_not_of_the_request() -> None:
    assert _select(instance_ids=["c__c-1", "b__b-3", "c__c-1"]) == ["b__b-3", "c__c-1"]


def test_ids_come_from_a_file_with_comments_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf# mine\n\n a__a-2 # the hard one\r\nb__b-1\n")
    assert _select(ids_file=str(path)) == ["b__b-1", "a__a-2"]
    assert _select(ids_file=str(path), instance_ids=["a__a-2", "c__c-1"]) == ["a__a-2"]


def test_every_given_condition_must_hold() -> None:
    assert _select(regex="-1") == ["a__a-1", "b__b-1", "c__c-10", "c__c-1"]
    assert _select(regex="-1$", repos=["a/a", "c/c"]) == ["a__a-1", "c__c-1"]
    assert _select(regex="-1$", repos=["a/a", "c/c"], exclude=["c__c-1"]) == ["a__a-1"]


def test_start_and_k_cut_a_slice_of_what_is_selected() -> None:
    assert _select(start_idx=1, k=2) == ["a__a-1", "b__b-1"]
    assert _select(repos=["c/c"], start_idx=1) == ["c__c-1"]
    assert _select(k=6) == _ids(ROWS)


def test_a_slice_past_the_end_is_cut_with_a_notice() -> None:
    rows, notices = select(ROWS, SelectSpec(start_idx=4, k=10))
    assert _ids(rows) == ["a__a-2", "c__c-1"]
    assert notices == ["k is 10, but only 2 instances are there after start_idx 4: all of them are taken"]


def test_a_seed_shuffles_the_same_way_everywhere_and_before_the_slice() -> None:
    shuffled = _select(shuffle_seed=7)
    assert shuffled == ["a__a-2", "b__b-3", "c__c-1", "c__c-10", "a__a-1", "b__b-1"]
    assert _select(shuffle_seed=7, start_idx=1, k=3) == shuffled[1:4]
    assert sorted(_select(shuffle_seed=8)) == sorted(shuffled)
    assert _select(shuffle_seed=8) != shuffled


def test_unknown_ids_are_all_listed_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("x__x-1\na__a-1\n")
    spec = SelectSpec(instance_ids=["a__a-11", "b__b-1"], ids_file=str(path), exclude=["zzz"])
    with pytest.raises(ConfigError) as caught:
        select(ROWS, spec)
    assert caught.value.reason.startswith("select: 3 ids are not in the dataset: ")
    assert "a__a-11 (did you mean a__a-1" in caught.value.reason
    assert "x__x-1" in caught.value.reason
    assert "zzz" in caught.value.reason
    assert "\n" not in caught.value.reason


def test_a_hundred_unknown_ids_are_all_listed() -> None:
    unknown = [f"x__x-{number}" for number in range(100)]
    with pytest.raises(ConfigError) as caught:
        select(ROWS, SelectSpec(instance_ids=unknown))
    assert all(each in caught.value.reason for each in unknown)


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("AWS_SECRET_ACCESS_KEY=abc\n", "1 id is not in the dataset: none of them has the form of an id"),
        (f"{'e' * 129}\nx__x-1\n", "2 ids are not in the dataset: x__x-1, 1 more"),
        ("".join(f"x__x-{n}\n" for n in range(9)), "x__x-3, x__x-4, 4 more"),
    ],
)
def test_refusal_of_an_ids_file_quotes_few_ids_and_no_other_text(tmp_path: Path, text: str, listed: str) -> None:
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(ConfigError) as caught:
        select(ROWS, SelectSpec(ids_file=str(tmp_path / "ids.txt")))
    assert caught.value.reason.endswith(listed)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"regex": "("}, r"^select\.regex: '\(' is no regular expression: "),
        ({"repos": ["a/a", "b/bb"]}, r"no repository b/bb \(did you mean b/b\?\); it has a/a, b/b, c/c"),
        ({"regex": "nothing"}, r"nothing is left after regex 'nothing' \(of 6 before\)"),
        ({"repos": ["a/a"], "regex": "c__"}, r"nothing is left after repo a/a \(of 2 before\)"),
        ({"instance_ids": ["a__a-1"], "exclude": ["a__a-1"]}, r"nothing is left after exclude \(of 1 before\)"),
        ({"start_idx": 6}, r"^select\.start_idx: no instance is selected: 6 of 6 are skipped"),
        ({"ids_file": "/nonexistent/ids"}, r"^select\.ids_file: there is no file /nonexistent/ids"),
    ],
)
def test_a_wish_that_selects_nothing_says_what_emptied_it(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        select(ROWS, SelectSpec.model_validate(spec))


def test_a_file_without_ids_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("# none\n")
    with pytest.raises(ConfigError, match="names no ids"):
        select(ROWS, SelectSpec(ids_file=str(path)))
