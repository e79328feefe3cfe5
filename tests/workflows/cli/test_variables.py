"""Environment variables of other tools: each sets its field, and files and flags override it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.settings import settings
from swe_argo.workflows.api import request
from swe_argo.workflows.cli import spec_sources
from swe_argo.workflows.templates.evaluate import evaluate
from tests.paths import ROOT

CASES: list[tuple[str, str, str, Any]] = [
    ("EVAL_OUTPUT_PATH", "./there", "store", "./there"),
    ("SWE_ARGO_STORE", "s3://b/p", "store", "s3://b/p"),
    ("EVAL_MAX_RETRIES", "7", "retries", 7),
    ("EVAL_SKIP_MAXIMUM_RETRIES_EXCEEDED", "false", "fail_fast", True),
    ("EVAL_SKIP_MAXIMUM_RETRIES_EXCEEDED", "True", "fail_fast", False),
    ("EVAL_SAVE_ERROR_LOGS", "false", "save_error_logs", False),
    ("EVAL_SAVE_ERROR_LOGS", " Off\n", "save_error_logs", False),
    ("EVAL_SAVE_CHECKPOINTS", "0", "save_checkpoints", False),
    ("RUNTIME", "docker", "sandbox.backend", "docker"),
    ("RUNTIME", "eventstream", "sandbox.backend", "docker"),
    ("RUNTIME", "ags", "sandbox.backend", "ags"),
    ("ITERATIVE_EVAL_MODE", "true", "agent.iterative", True),
    ("ITERATIVE_EVAL_MODE_MAX_ATTEMPTS", "5", "agent.iterative_max_attempts", 5),
    ("USE_HINT_TEXT", "true", "agent.hints", True),
    ("INSTRUCTION_TEMPLATE_NAME", "swe_default.j2", "agent.instruction_template", "swe_default.j2"),
    ("DEFAULT_RUNTIME_RESOURCE_FACTOR", "2.0", "sandbox.resource_factor", 2.0),
    ("SKIP_IDS", "a__b-1, a__b-2,", "select.exclude", ["a__b-1", "a__b-2"]),
    ("START_IDX", "3", "select.start_idx", 3),
    ("K", "5", "select.k", 5),
    ("LLM_BASE_URL", "http://localhost:8000/v1", "llm.base_url", "http://localhost:8000/v1"),
    ("LLM_BASE_URL", "http://localhost:8000/v1\n", "llm.base_url", "http://localhost:8000/v1"),
]
MODEL = {"agent_name": "openhands", "agent_model": "openai/m"}
FIELDS = {field.name: field for field in fields()}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("EVAL_") or name in {variable.name for variable in request.VARIABLES}:
            monkeypatch.delenv(name)
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


def test_variable_table_is_fully_tested() -> None:
    assert {variable.name for variable in request.VARIABLES if variable.field} == {name for name, *_ in CASES}


@pytest.mark.parametrize(("name", "text", "field", "value"), CASES)
def test_variable_sets_field_unless_overridden(  # noqa: PLR0917 - pytest's arguments
    name: str, text: str, field: str, value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, text)
    request = spec_sources.read_request(None, MODEL, [])
    assert FIELDS[field].of(request.spec) == value
    assert f"{name} ({field} = {value})" in request.notes[0]
    default = FIELDS[field].info.get_default(call_default_factory=True)
    file_value = {"select.k": 9}.get(field, "other") if default is None else default
    table, _, last = field.rpartition(".")
    written = str(file_value).lower() if isinstance(file_value, bool) else repr(file_value)
    path = tmp_path / "run.toml"
    path.write_text((f"[{table}]\n" if table else "") + f"{last} = {written}\n")
    request = spec_sources.read_request(path, MODEL, [])
    assert FIELDS[field].of(request.spec) == file_value
    assert not request.notes
    assert FIELDS[field].of(spec_sources.read_request(path, MODEL, [f"{field}={_toml(value)}"]).spec) == value


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_own_store_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWE_ARGO_STORE", "ours")
    monkeypatch.setenv("EVAL_OUTPUT_PATH", "theirs")
    assert spec_sources.read(None, {}, []).store == "ours"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("RUNTIME", "remote", "RUNTIME: 'remote' is not a backend: give one of ags, docker, e2b, kubernetes and local"),
        ("K", "ten", "K: 'ten' is not a whole number"),
        ("EVAL_MAX_RETRIES", "-1", "EVAL_MAX_RETRIES: retries: input should be greater than or equal to 0"),
        ("EVAL_SAVE_CHECKPOINTS", "maybe", "EVAL_SAVE_CHECKPOINTS: 'maybe' is not true or false"),
        ("DEFAULT_RUNTIME_RESOURCE_FACTOR", "0", "DEFAULT_RUNTIME_RESOURCE_FACTOR: sandbox.resource_factor"),
        ("DEFAULT_RUNTIME_RESOURCE_FACTOR", "big", "'big' is not a number"),
        ("LLM_BASE_URL", "http://me:secret@host/v1", "LLM_BASE_URL: llm.base_url"),
    ],
)
def test_invalid_variable_is_named(name: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError, match=message):
        spec_sources.read(None, MODEL, [])


def test_overridden_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME", "remote")
    assert spec_sources.read(None, {"sandbox_backend": "docker"}, []).sandbox.backend == "docker"


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", "")
    monkeypatch.setenv("RUNTIME", " ")
    request = spec_sources.read_request(None, {}, [])
    assert (request.spec.select.k, request.notes) == (None, ())


def test_model_variables_need_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USE_HINT_TEXT", "ITERATIVE_EVAL_MODE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("LLM_BASE_URL", "http://localhost")
    spec = spec_sources.read(None, {"agent_name": "gold"}, [])
    assert (spec.agent.hints, spec.agent.iterative, spec.llm.base_url) == (False, False, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("EVAL_MAX_RETRY", "unknown variable EVAL_MAX_RETRY has no effect; did you mean EVAL_MAX_RETRIES?"),
        ("EVAL_XYZ", "unknown variable EVAL_XYZ has no effect"),
    ],
)
def test_unknown_variable_is_noted(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    assert any(message in note for note in spec_sources.read_request(None, {}, []).notes)


@pytest.mark.parametrize(("text", "level"), [("debug", "DEBUG"), ("WARN", "WARN"), ("Info", "INFO")])
def test_log_level_is_read_from_env(text: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", text)
    assert settings().log_level == level


def test_invalid_log_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="LOG_LEVEL: 'loud' is not one of DEBUG, INFO"):
        settings()


def test_docs_contain_variable_table() -> None:
    page = (ROOT / "templates" / "runs" / "README.md").read_text("utf-8")
    assert [line for line in request.render_table().splitlines() if line not in page.splitlines()] == []


def test_variable_parameters_exist() -> None:
    manifest = evaluate().to_dict()
    parameters = {parameter["name"] for parameter in manifest["spec"]["arguments"]["parameters"]}
    assert {variable.parameter for variable in request.VARIABLES if variable.parameter} <= parameters
