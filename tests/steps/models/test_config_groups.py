"""Groups of OpenHands' config.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.models.config_groups import read_group

KEY = "sk-of-the-group-1234567890"
CONFIG = f"""
[core]
workspace_base = "./workspace"

[llm]
num_retries = 8
timeout = 300
caching_prompt = true

[llm.eval_gpt4]
model = "openai/gpt-4.1"
api_key = "{KEY}"
base_url = "https://llm.example.org/v1"
temperature = 0.0
top_p = 0.95
max_output_tokens = 4096
input_cost_per_token = 2e-6
output_cost_per_token = 8e-6
timeout = 120
seed = 7
reasoning_effort = "high"
native_tool_calling = false

[llm.local]
model = "hosted_vllm/Qwen/Qwen3-Coder"
temprature = 1.0
top_k = 20
timeout = 0

[llm.plain]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config.toml"
    file.write_text(CONFIG)
    return str(file)


@pytest.mark.parametrize("name", ["llm.eval_gpt4", "eval_gpt4"])
def test_config_group_sets_spec_not_key(config: str, name: str) -> None:
    group = read_group(config, name)
    spec = RunSpec.model_validate(group.fields)
    llm = spec.llm
    assert spec.agent.model == "openai/gpt-4.1"
    assert spec.agent.use_fn_calling == "false"
    assert llm.base_url == "https://llm.example.org/v1"
    assert (llm.temperature, llm.top_p, llm.max_output_tokens, llm.seed) == (0.0, 0.95, 4096, 7)
    assert (llm.input_cost_per_token, llm.output_cost_per_token, llm.reasoning_effort) == (2e-6, 8e-6, "high")
    assert (llm.timeout, llm.num_retries, llm.native_tool_calling) == (120, 8, False)
    assert group.key is not None
    assert group.key.get_secret_value() == KEY
    assert KEY not in f"{group!r}{group}{spec!r}{spec.model_dump_json()}"
    assert group.notes == []


def test_config_group_inherits_defaults(config: str) -> None:
    assert read_group(config, "llm.plain").fields == {"llm": {"num_retries": 8, "timeout": 300}}
    assert read_group(config, "llm").fields == {"llm": {"num_retries": 8, "timeout": 300}}


def test_config_group_notes_unused_keys(config: str) -> None:
    group = read_group(config, "local")
    assert group.key is None
    assert group.fields["agent"] == {"model": "hosted_vllm/Qwen/Qwen3-Coder"}
    assert "timeout" not in group.fields["llm"]
    unknown, steering = group.notes
    assert unknown.endswith("are ignored: temprature")
    assert "top_k" in steering


TEMPLATE = """
[llm]
aws_access_key_id = ""
api_key = "your-api-key"
base_url = ""
api_version = ""
input_cost_per_token = 0.0
output_cost_per_token = 0.0
custom_llm_provider = ""
embedding_base_url = ""
embedding_deployment_name = ""
embedding_model = "local"
max_message_chars = 10000
max_input_tokens = 0
max_output_tokens = 0
model = "gpt-4o"
num_retries = 8
retry_max_wait = 120
retry_min_wait = 15
retry_multiplier = 2.0
drop_params = false
caching_prompt = true
ollama_base_url = ""
temperature = 0.0
timeout = 0
top_p = 1.0
disable_vision = true

[llm.gpt4o-mini]
model = "gpt-4o-mini"
"""
"""OpenHands' defaults: 0 and "" stand for none."""


def test_openhands_template_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TEMPLATE)
    group = read_group(str(file), "llm.gpt4o-mini")
    spec = RunSpec.model_validate(group.fields)
    assert group.notes == []
    assert group.key is not None
    assert spec.agent.model == "gpt-4o-mini"
    assert (spec.llm.base_url, spec.llm.max_output_tokens, spec.llm.timeout, spec.llm.top_p) == (None, None, 600, 1)


def test_unknown_group_lists_known_ones(config: str) -> None:
    words = r"no group \[llm.eval_gtp4\].*did you mean llm.eval_gpt4.*llm.local, llm.plain"
    with pytest.raises(ConfigError, match=words) as failure:
        read_group(config, "llm.eval_gtp4")
    assert failure.value.field == "llm.config"
    assert KEY not in str(failure.value)


def test_missing_plain_group_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[llm.a]\nmodel = "m"\n')
    with pytest.raises(ConfigError, match=r"no group \[llm\] \(groups: llm.a\)"):
        read_group(str(tmp_path / "config.toml"), "llm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file"),
        ("[llm", "is no TOML"),
        ("llm = 3", r"no group .*\(groups: none\)"),
        (b"\xff", "cannot be read"),
    ],
)
def test_unreadable_config_is_reported(tmp_path: Path, text: str | bytes | None, message: str) -> None:
    file = tmp_path / "config.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message):
        read_group(str(file), "llm.x")


def test_invalid_key_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[llm.x]\napi_key = ["sk-secret-in-a-list"]\n')
    with pytest.raises(ConfigError, match="api_key in") as failure:
        read_group(str(file), "x")
    assert "sk-secret" not in str(failure.value)
