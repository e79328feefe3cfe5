"""A spec put together from words: what lies over what, and what a word is taken for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.spec_parsing import Tables, check_spec, merge_tables, of_text, put_item, suggest_fields

TABLES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers()),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(), inner)),
)


def flat(tables: Tables, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    leaves_by_path: dict[tuple[str, ...], Any] = {}
    for name, value in tables.items():
        leaves_by_path |= flat(value, (*path, name)) if isinstance(value, dict) else {(*path, name): value}
    return leaves_by_path


@given(TABLES, TABLES)
def test_laid_over_prefers_upper_layer(below: Tables, above: Tables) -> None:
    both, upper = flat(merge_tables(below, above)), flat(above)
    assert upper.items() <= both.items()
    for path, value in both.items():
        if path not in upper:
            assert flat(below)[path] == value


@pytest.mark.parametrize(
    ("text", "run_id"),
    [("20260101", "20260101"), ("2026-01-01", "2026-01-01"), ("true", "true"), ('"quoted"', "quoted")],
)
def test_text_field_keeps_numbers(text: str, run_id: str) -> None:
    tables: Tables = {}
    put_item(tables, f"run_id={text}")
    assert check_spec(tables, "test").run_id == run_id


def test_toml_and_json_parse_alike() -> None:
    toml = of_text('attempts = 2\n[agent]\nname = "idle"', "test")
    assert toml == of_text('{"attempts": 2, "agent": {"name": "idle"}}', "test")


@pytest.mark.parametrize(("text", "kind"), [("attempts = ", "TOML"), ('{"attempts": ', "JSON")])
def test_malformed_text_is_refused(text: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"spec is not {kind}"):
        of_text(text, "spec")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"agent": {"model": "m\ud800"}}, "agent.model"),
        ({"dataset": "\udcff\udcfe"}, "dataset"),
        ({"select": {"instance_ids": ["a", "b\udce9"]}}, "select.instance_ids"),
        ({"agent": {"predictions": "caf\udce9.jsonl"}}, "agent.predictions"),
    ],
)
def test_non_text_bytes_are_refused(spec: Any, field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}: .* contains bytes that are not UTF-8 text") as refusal:
        check_spec(spec, "flags")
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("below", ['sandbox.namespace = "a"', 'sandbox.kubernetes.namespace = "a"'])
@pytest.mark.parametrize(
    "above", ['{"sandbox": {"namespace": "b"}}', '{"sandbox": {"kubernetes": {"namespace": "b"}}}']
)
def test_upper_layer_wins_by_any_name(below: str, above: str) -> None:
    spec = check_spec(merge_tables(of_text(below, "file"), of_text(above, "text")), "spec")
    assert spec.sandbox.kubernetes.namespace == "b"


def test_nested_name_comes_first() -> None:
    fields: dict[str, Any] = {"kubernetes": KubernetesSpec(context="eks"), "namespace": "b"}
    sandbox = SandboxSpec(**fields)
    assert (sandbox.kubernetes.context, sandbox.kubernetes.namespace) == ("eks", "b")
    assert SandboxSpec(**fields | {"kubernetes": KubernetesSpec(namespace="own")}).kubernetes.namespace == "own"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k = 5", "'select.k'"),
        ("model = 'openai/m'", "'agent.model'"),
        ("base_url = 'x'", "'llm.base_url'"),
        ("[agent]\ndataset = 'mini'", "'dataset'"),
        ("memory_mb = 5", "'sandbox.memory_mb'"),
        ("max-iterations = 5", "'agent.max_steps'"),
        ("timeout_s = 5", "'agent.timeout_s' or 'grading.timeout_s'"),
        ("[selection]\nk = 5", "'select'"),
        ("datset = 'x'", "'dataset'"),
        ("[agent]\nmax_stps = 5", "'agent.max_steps'"),
    ],
)
def test_misplaced_field_has_suggestion(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_spec(of_text(text, "RUN.toml"), "RUN.toml")
    assert caught.value.reason.endswith(f"; did you mean {expected}?")


def test_unknown_field_has_no_suggestion() -> None:
    assert suggest_fields("zzzz", ["dataset", "select.k"]) == ""
