"""Files of resource factors, and refusals of invalid ones."""

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


def test_resource_factors_are_read(tmp_path: Path) -> None:
    file = written(tmp_path, '{"a__b-1": 2, "a__b-2": 0.5}')
    assert resource_factors.read(file, KNOWN) == {"a__b-1": 2.0, "a__b-2": 0.5}
    assert resource_factors.read(None, KNOWN) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a__b-3": 2}', "no instance 'a__b-3'; did you mean 'a__b-"),
        ('{"a__b-1": "2"}', "the factor of a__b-1 is '2', not a number above 0"),
        *((f'{{"a__b-1": {value}}}', "not a number above 0") for value in ("0", "-1", "true", "NaN", "Infinity")),
        ('{"a__b-1": 1' + "0" * 400 + "}", "not a number above 0"),
        ('{"a__b-1": 1, "a__b-1": 2}', "'a__b-1' appears twice"),
        ("[]", "not an object"),
        ("{", "is not JSON"),
    ],
)
def test_invalid_factor_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.resource_factors: ") as caught:
        resource_factors.read(written(tmp_path, text), KNOWN)
    assert message in caught.value.reason


def test_invalid_factor_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_bytes(b"\xff")
    for file, reason in {
        "none.json": r"there is no file none\.json",
        "~nobody-at-all/f.json": r"'~nobody-at-all/f\.json' is not a path",
        str(tmp_path): "is a folder",
        str(tmp_path / "f.json"): "is not JSON",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            resource_factors.read(file, KNOWN)


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    path = Path(__file__).parent / "never"
    try:
        factors = resource_factors.parse_factors(text, str(path), KNOWN)
    except ConfigError:
        return
    assert all(0 < factor < resource_factors.MAX_FACTOR for factor in factors.values())


@pytest.mark.parametrize(
    ("spec", "multiplied", "is_noted"),
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
def test_factor_without_effect_is_noted(spec: dict[str, object], multiplied: list[float], is_noted: bool) -> None:
    assert bool(resource_factors.notices(SandboxSpec.model_validate(spec), multiplied)) is is_noted
