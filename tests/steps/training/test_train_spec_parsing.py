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


def test_the_guide_s_flat_fields_are_ours(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(GUIDE + "loss: {name: ppo}\ndataset: verified\nagent: openhands\nsandbox: {cpus: 1}\n")
    spec = read_train_spec([NAMED, of_train_file(file)], [], "spec")
    assert (spec.lr, spec.group_size, spec.steps, spec.checkpoint_every) == (1e-5, 4, 3, 2)
    assert (spec.run.workers, spec.run.agent.max_steps, spec.run.llm.temperature) == (6, 9, 0.7)
    assert (spec.loss.name, spec.run.dataset, spec.run.agent.name, spec.run.sandbox.cpus) == (
        "ppo",
        "verified",
        "openhands",
        1,
    )


def test_the_names_of_tinker_cookbook_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text("model_name: m\nlearning_rate: 1.0e-4\ngroups_per_batch: 5\nsave_every: 7\nloss_fn: cispo\n")
    spec = read_train_spec([{"name": "one"}, of_train_file(file)], [], "spec")
    found = (spec.base_model, spec.lr, spec.groups, spec.checkpoint_every, spec.loss.name)
    assert found == ("m", 1e-4, 5, 7, "cispo")


def test_rollouts_are_sampled_as_a_training_needs_them() -> None:
    spec = read_train_spec([NAMED], [], "spec")
    assert (spec.run.agent.name, spec.run.agent.model) == ("r2egym", "openai/tinker")
    assert (spec.run.llm.temperature, spec.run.llm.logprobs) == (1.0, True)


def test_rollouts_take_the_confirmation_runs_of_the_spec() -> None:
    spec = read_train_spec([NAMED], ["confirm_runs=1", "loss.unconfirmed=zero"], "spec")
    assert (spec.run.grading.confirm_runs, spec.loss.suspect, spec.loss.unconfirmed) == (1, "by-outcome", "zero")


def test_later_words_win_and_a_spec_that_was_written_out_is_the_same_spec() -> None:
    spec = read_train_spec([NAMED, {"steps": 4}, {"steps": 5}], ["lr=1e-4", "max_steps=7"], "spec")
    assert (spec.steps, spec.lr, spec.run.agent.max_steps) == (5, 1e-4, 7)
    assert read_train_spec([of_train_text(spec.model_dump_json(), "spec")], [], "spec") == spec


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("groupsize=3", r"^there is no field 'groupsize'; did you mean 'group_size'\?$"),
        ("loss.nam=ppo", r"^spec: there is no field 'loss.nam'; did you mean 'loss.name'\?$"),
        ("run.agent.max_step=3", r"did you mean 'run.agent.max_steps'\?$"),
        ("timeout=3", "several fields: run.llm.timeout, run.grading.timeout_s$"),
        ("lr=fast", "^spec: lr: input should be a number, not 'fast'$"),
        ("loss.name=pppo", r"^spec: loss.name: .*; did you mean 'ppo'\?$"),
        ("attempts=3", "^run.attempts: .* group_size says it$"),
        ("run.run_id=r", "^run.run_id: .*: name$"),
        ("model=openai/gpt", "^run.agent.model: .* base_model says it$"),
        ("base_url=http://localhost", "^run.llm.base_url: .* proxy_url says it$"),
        ("logprobs=false", "^run.llm.logprobs: .*nothing can be learnt"),
        ("agent=gold", "agent gold asks no model"),
        ("held_out.every=2", "held_out.every needs"),
        ("lr", "^--set: 'lr' is not NAME=VALUE$"),
    ],
)
def test_a_wrong_field_is_refused_in_a_line_that_names_the_way_out(item: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_train_spec([NAMED], [item], "spec")
    assert "\n" not in str(error.value)


def test_a_training_has_a_name_and_a_model() -> None:
    with pytest.raises(ConfigError, match=r"^spec: name: field required; base_model: field required$"):
        read_train_spec([], [], "spec")


@pytest.mark.parametrize(
    ("text", "message"), [("- 1\n", "holds no fields"), ("a: [", "is not YAML"), (None, "there is no file")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "x.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        of_train_file(file)
    assert "\n" not in str(error.value)
