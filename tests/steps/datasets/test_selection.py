"""Selection of instances: order, conditions, and refusals."""

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
    normalise(row(name, repo=name.split("-")[0].replace("__", "/")), "made")
    for name in ("b__b-3", "a__a-1", "b__b-1", "c__c-10", "a__a-2", "c__c-1")
]


def _ids(rows: list[Row]) -> list[str]:
    return [item["instance_id"] for item in rows]


def _select(**spec: object) -> list[str]:
    rows, notices = select(ROWS, SelectSpec.model_validate(spec))
    assert notices == []
    return _ids(rows)


def test_select_keeps_dataset_order() -> None:
    assert _select() == _select(k=6) == _ids(ROWS)
    assert _select(instance_ids=["c__c-1", "b__b-3", "c__c-1"]) == ["b__b-3", "c__c-1"]


def test_ids_file_allows_comments(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf# mine\n\n a__a-2 # the hard one\r\nb__b-1\n")
    assert _select(ids_file=str(path)) == ["b__b-1", "a__a-2"]
    assert _select(ids_file=str(path), instance_ids=["a__a-2", "c__c-1"]) == ["a__a-2"]


def test_select_requires_all_conditions() -> None:
    assert _select(regex="-1") == ["a__a-1", "b__b-1", "c__c-10", "c__c-1"]
    assert _select(regex="-1$", repos=["a/a", "c/c"]) == ["a__a-1", "c__c-1"]
    assert _select(regex="-1$", repos=["a/a", "c/c"], exclude=["c__c-1"]) == ["a__a-1"]


def test_start_and_k_slice_selected_rows() -> None:
    assert _select(start_idx=1, k=2) == ["a__a-1", "b__b-1"]
    assert _select(repos=["c/c"], start_idx=1) == ["c__c-1"]
    rows, notices = select(ROWS, SelectSpec(start_idx=4, k=10))
    assert _ids(rows) == ["a__a-2", "c__c-1"]
    assert notices == ["k is 10, but only 2 instances remain after start_idx 4: all of them are selected"]


def test_shuffle_is_seeded() -> None:
    shuffled = _select(shuffle_seed=7)
    assert shuffled == ["a__a-2", "b__b-3", "c__c-1", "c__c-10", "a__a-1", "b__b-1"]
    assert _select(shuffle_seed=7, start_idx=1, k=3) == shuffled[1:4]
    assert sorted(_select(shuffle_seed=8)) == sorted(shuffled)
    assert _select(shuffle_seed=8) != shuffled


def test_unknown_ids_have_suggestions(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("x__x-1\na__a-1\n")
    spec = SelectSpec(instance_ids=["a__a-11", "b__b-1"], ids_file=str(path), exclude=["zzz"])
    with pytest.raises(ConfigError) as caught:
        select(ROWS, spec)
    assert caught.value.reason.startswith("select: 3 ids are not in the dataset: ")
    for part in ("a__a-11 (did you mean a__a-1", "x__x-1", "zzz"):
        assert part in caught.value.reason
    assert "\n" not in caught.value.reason
    unknown = [f"x__x-{number}" for number in range(100)]
    with pytest.raises(ConfigError) as caught:
        select(ROWS, SelectSpec(instance_ids=unknown))
    assert all(instance_id in caught.value.reason for instance_id in unknown)


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("# none\n", "names no ids"),
        ("AWS_SECRET_ACCESS_KEY=abc\n", "1 id is not in the dataset: none of them is a valid id"),
        (f"{'e' * 129}\nx__x-1\n", "2 ids are not in the dataset: x__x-1, 1 more"),
        ("".join(f"x__x-{n}\n" for n in range(9)), "x__x-3, x__x-4, 4 more"),
    ],
)
def test_ids_file_is_quoted_briefly(tmp_path: Path, text: str, listed: str) -> None:
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(ConfigError) as caught:
        select(ROWS, SelectSpec(ids_file=str(tmp_path / "ids.txt")))
    assert listed in caught.value.reason


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"regex": "("}, r"^select\.regex: '\(' is not a regular expression: "),
        ({"repos": ["a/a", "b/bb"]}, r"no repository b/bb \(did you mean b/b\?\); it has a/a, b/b, c/c"),
        ({"regex": "nothing"}, r"none remains after regex 'nothing' \(of 6 before\)"),
        ({"repos": ["a/a"], "regex": "c__"}, r"none remains after repo a/a \(of 2 before\)"),
        ({"instance_ids": ["a__a-1"], "exclude": ["a__a-1"]}, r"none remains after exclude \(of 1 before\)"),
        ({"start_idx": 6}, r"^select\.start_idx: no instance is selected: 6 of 6 are skipped"),
        ({"ids_file": "/nonexistent/ids"}, r"^select\.ids_file: there is no file /nonexistent/ids"),
    ],
)
def test_empty_selection_names_cause(spec: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        select(ROWS, SelectSpec.model_validate(spec))
