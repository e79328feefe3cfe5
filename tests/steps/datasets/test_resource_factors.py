"""A file of resource factors: what is read of it, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.datasets import resource_factors
from swe_argo.steps.errors import ConfigError

KNOWN = ["a__b-1", "a__b-2"]


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "factors.json").write_text(text)
    return str(tmp_path / "factors.json")


def test_each_instance_has_its_factor(tmp_path: Path) -> None:
    assert resource_factors.read(written(tmp_path, '{"a__b-1": 2, "a__b-2": 0.5}'), KNOWN) == {
        "a__b-1": 2.0,
        "a__b-2": 0.5,
    }
    assert resource_factors.read(None, KNOWN) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a__b-3": 2}', "no instance 'a__b-3'; did you mean 'a__b-"),
        ('{"a__b-1": "2"}', "the factor of a__b-1 is '2', not a number above 0"),
        ('{"a__b-1": 0}', "not a number above 0"),
        ('{"a__b-1": -1}', "not a number above 0"),
        ('{"a__b-1": true}', "not a number above 0"),
        ('{"a__b-1": NaN}', "not a number above 0"),
        ('{"a__b-1": Infinity}', "not a number above 0"),
        ('{"a__b-1": 1' + "0" * 400 + "}", "not a number above 0"),
        ('{"a__b-1": 1, "a__b-1": 2}', "'a__b-1' stands there twice"),
        ("[]", "not an object"),
        ("{", "is not JSON"),
    ],
)
def test_a_wrong_entry_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.resource_factors: ") as caught:
        resource_factors.read(written(tmp_path, text), KNOWN)
    assert said in caught.value.reason


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file none\.json"):
        resource_factors.read("none.json", KNOWN)
    with pytest.raises(ConfigError, match=r"'~nobody-at-all/f\.json' is no path"):
        resource_factors.read("~nobody-at-all/f.json", KNOWN)
    with pytest.raises(ConfigError, match="is a folder"):
        resource_factors.read(str(tmp_path), KNOWN)
    (tmp_path / "f.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not JSON"):
        resource_factors.read(str(tmp_path / "f.json"), KNOWN)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    path = Path(__file__).parent / "never"
    try:
        found = resource_factors.of_text(text, str(path), KNOWN)
    except ConfigError:
        return
    assert all(0 < factor < resource_factors.MOST for factor in found.values())


@pytest.mark.parametrize(
    ("spec", "multiplied", "told"),
    [
        ({}, [], False),
        ({"resource_factor": 2}, [], True),
        ({}, [1.0, 3.0], True),
        ({"resource_factor": 2, "memory_mb": 512}, [], False),
        ({"resource_factor": 2, "backend": "docker", "cpus": 1}, [], False),
        ({"resource_factor": 2, "backend": "docker"}, [], True),
        ({"resource_factor": 2, "backend": "kubernetes"}, [], False),
    ],
)
def test_a_factor_with_nothing_to_multiply_is_told(
    spec: dict[str, object], multiplied: list[float], told: bool
) -> None:
    assert bool(resource_factors.notices(SandboxSpec.model_validate(spec), multiplied)) is told
