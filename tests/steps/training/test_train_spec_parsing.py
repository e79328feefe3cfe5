from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.training.train_spec_parsing import of_train_file, of_train_text, read_train_spec

NAMED = {"name": "one", "base_model": "test/model"}
GUIDE = """\
lr: 1e-5
group_size: 4
steps: 3
checkpoint_every: 2
workers: 6
max_steps: 9
temperature: 0.7
"""
"""The fields of the EKS guide."""


def test_parser_accepts_guide_fields(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(GUIDE + "loss: {name: ppo}\ndataset: verified\nagent: openhands\nsandbox: {cpus: 1}\n")
    spec = read_train_spec([NAMED, of_train_file(file)], [], "spec")
    assert (spec.lr, spec.group_size, spec.steps, spec.checkpoint_every) == (1e-5, 4, 3, 2)
    assert (spec.run.workers, spec.run.agent.max_steps, spec.run.llm.temperature) == (6, 9, 0.7)
    assert (spec.loss.name, spec.run.dataset, spec.run.agent.name) == ("ppo", "verified", "openhands")
    assert spec.run.sandbox.cpus == 1


def test_parser_accepts_cookbook_names(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text("model_name: m\nlearning_rate: 1.0e-4\ngroups_per_batch: 5\nsave_every: 7\nloss_fn: cispo\n")
    spec = read_train_spec([{"name": "one"}, of_train_file(file)], [], "spec")
    values = (spec.base_model, spec.lr, spec.groups, spec.checkpoint_every, spec.loss.name)
    assert values == ("m", 1e-4, 5, 7, "cispo")


def test_rollouts_have_training_defaults() -> None:
    spec = read_train_spec([NAMED], [], "spec")
    assert (spec.run.agent.name, spec.run.agent.model) == ("r2egym", "openai/tinker")
    assert (spec.run.llm.temperature, spec.run.llm.logprobs) == (1.0, True)


def test_rollouts_use_confirm_runs() -> None:
    spec = read_train_spec([NAMED], ["confirm_runs=1", "loss.unconfirmed=zero"], "spec")
    assert (spec.run.grading.confirm_runs, spec.loss.suspect, spec.loss.unconfirmed) == (1, "by-outcome", "zero")


def test_parser_prefers_later_values() -> None:
    spec = read_train_spec([NAMED, {"steps": 4}, {"steps": 5}], ["lr=1e-4", "max_steps=7"], "spec")
    assert (spec.steps, spec.lr, spec.run.agent.max_steps) == (5, 1e-4, 7)
    assert read_train_spec([of_train_text(spec.model_dump_json(), "spec")], [], "spec") == spec


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("groupsize=3", r"^there is no field 'groupsize'; did you mean 'group_size'\?$"),
        ("loss.nam=ppo", r"^spec: there is no field 'loss.nam'; did you mean 'loss.name'\?$"),
        ("run.agent.max_step=3", r"did you mean 'run.agent.max_steps'\?$"),
        ("timeout=3", "ambiguous; use one of run.llm.timeout, run.grading.timeout_s$"),
        ("lr=fast", "^spec: lr: input should be a number, not 'fast'$"),
        ("loss.name=pppo", r"^spec: loss.name: .*; did you mean 'ppo'\?$"),
        ("attempts=3", "^run.attempts: .* set group_size$"),
        ("run.run_id=r", "^run.run_id: .*: set name$"),
        ("model=openai/gpt", "^run.agent.model: .* set base_model$"),
        ("base_url=http://localhost", "^run.llm.base_url: .* set proxy_url$"),
        ("logprobs=false", "^run.llm.logprobs: .*training requires them"),
        ("agent=gold", "agent gold asks no model"),
        ("held_out.every=2", "held_out.every needs"),
        ("lr", "^--set: 'lr' is not NAME=VALUE$"),
    ],
)
def test_wrong_field_has_a_hint(item: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_train_spec([NAMED], [item], "spec")
    assert "\n" not in str(error.value)


def test_training_needs_name_and_model() -> None:
    with pytest.raises(ConfigError, match=r"^spec: name: field required; base_model: field required$"):
        read_train_spec([], [], "spec")


@pytest.mark.parametrize(
    ("text", "message"), [("- 1\n", "does not contain fields"), ("a: [", "is not YAML"), (None, "there is no file")]
)
def test_unreadable_spec_file_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "x.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        of_train_file(file)
    assert "\n" not in str(error.value)
