"""A spec that asks a model: what of it travels, what must be there, and that a key never does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.settings import settings
from swe_argo.steps.spec_parsing import checked, of_text
from swe_argo.steps.store import open_store
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.submission import Submission, submit, workflow
from swe_argo.workflows.cli import spec_sources as specs
from tests.workflows.argo.test_submission import chosen_spec, parameters
from tests.workflows.argo.world import World

pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
ASKS = {"name": "r2egym", "model": "openai/m"}
KEY = "sk-of-a-person-0123456789"


def send(engine: Engine, spec: RunSpec, *, key: bool = False) -> Submission:
    return submit(engine, spec, priority=0, compare_with="", dry=False, say=lambda _: None, key=key)


def asks(**fields: Any) -> RunSpec:
    return chosen_spec(agent=ASKS | fields.pop("agent", {}), **fields)


def test_what_a_person_says_of_a_model_is_seen_in_the_list_of_runs_and_means_the_same_there() -> None:
    spec = asks(agent={"max_steps": 60}, llm={"base_url": "http://vllm:8000/v1", "temperature": 0.7}, fail_fast=True)
    said = parameters(workflow(spec))
    shown = {name: said[name] for name in ("agent", "model", "base-url", "temperature", "max-steps", "fail-fast")}
    assert shown == {
        "agent": "r2egym", "model": "openai/m", "base-url": "http://vllm:8000/v1", "temperature": "0.7",
        "max-steps": "60", "fail-fast": "true",
    }  # fmt: skip
    again = checked(of_text(said["spec"], "spec"), "spec")
    assert (again.agent, again.llm, again.fail_fast) == (spec.agent, spec.llm, True)


def test_a_temperature_that_is_left_to_the_endpoint_is_left_to_it_there() -> None:
    said = parameters(workflow(asks(llm={"temperature": None, "extra_body": {"top_k": None, "a": {"b": 1}}})))
    assert said["temperature"] == ""
    again = checked(of_text(said["spec"], "spec"), "spec")
    assert again.llm.temperature is None
    assert again.llm.extra_body == {"top_k": None, "a": {"b": 1}}


def test_retries_and_resources_are_the_namespaces_unless_a_person_says_them() -> None:
    quiet, loud = (
        parameters(workflow(each)) for each in (chosen_spec(), chosen_spec(retries=5, sandbox={"resource_factor": 2.0}))
    )
    assert not {"retries", "resource-factor"} & quiet.keys()
    assert (loud["retries"], loud["resource-factor"]) == ("5", "2.0")
    for said in (quiet, loud):
        assert "retries" not in json.loads(said["spec"])
        assert "resource_factor" not in json.loads(said["spec"])["sandbox"]


def test_what_steps_print_is_what_the_variable_of_the_person_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    settings.cache_clear()
    assert parameters(workflow(chosen_spec()))["log-level"] == "INFO"
    monkeypatch.setenv("LOG_LEVEL", "debug")
    settings.cache_clear()
    said = parameters(workflow(chosen_spec()))
    settings.cache_clear()
    assert said["log-level"] == "DEBUG"
    assert "log" not in json.loads(said["spec"])


def test_a_group_of_models_travels_without_its_name_and_its_key(
    engine: Engine, world: World, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLM_BASE_URL", raising=False)
    (tmp_path / "config.toml").write_text(
        f'[llm.eval]\nmodel = "openai/m"\napi_key = "{KEY}"\nbase_url = "http://vllm:8000/v1"\ntemperature = 0.3\n'
    )
    flags = {"llm_config": "llm.eval", "llm_config_file": str(tmp_path / "config.toml"), "run_id": "r"}
    asked = specs.read_request(None, flags, [])
    assert list(asked.env.values()) == [KEY]
    world.chart(credentials="models")
    world.put("secrets", "models", data={"LLM_API_KEY": "c2VjcmV0"})
    sent = send(engine, asked.spec, key=True)
    assert KEY not in json.dumps(world.asked)
    assert "config" not in json.loads(parameters(sent.workflow)["spec"])["llm"]
    assert parameters(sent.workflow)["base-url"] == "http://vllm:8000/v1"
    assert sent.notes == [
        "the key of llm.eval stays here: Secret models must hold it, as LLM_API_KEY or OPENAI_API_KEY"
    ]


NAMED, GROUP = {"base_url": "http://vllm:8000/v1"}, {"config": "llm.eval"}
SECRETS: list[tuple[dict[str, str] | None, dict[str, str], str]] = [
    (None, {}, "there is no Secret models in namespace evals of context here, which agent r2egym gets its keys from"),
    (None, NAMED, ""),
    (None, NAMED | GROUP, "there is no Secret models"),
    ({}, {}, "Secret models, which agent r2egym gets its keys from, holds neither LLM_API_KEY nor OPENAI_API_KEY"),
    ({"HF_TOKEN": "a"}, GROUP, "the key of llm.eval stays here, and Secret models holds neither"),
    ({"LLM_BASE_URL": "a"}, {}, ""),
    ({"OPENAI_API_KEY": "a"}, {}, ""),
    ({"LLM_API_KEY": "a"}, {}, ""),
]
"""What the Secret holds, if it is there; how the model is asked (a group has a key); the refusal, if any."""


@pytest.mark.parametrize("case", SECRETS)
def test_a_secret_without_which_no_unit_could_ask_is_refused(
    case: tuple[dict[str, str] | None, dict[str, str], str], engine: Engine, world: World, bucket: str
) -> None:
    secret, llm, said = case
    world.chart(credentials="models")
    if secret is not None:
        world.put("secrets", "models", data=secret)
    if not said:
        send(engine, asks(llm=llm), key="config" in llm)
        return
    with pytest.raises(ConfigError) as refused:
        send(engine, asks(llm=llm), key="config" in llm)
    assert said in refused.value.reason
    assert world.made() == []


def test_secrets_that_may_not_be_seen_are_no_ground_to_refuse(engine: Engine, world: World, bucket: str) -> None:
    world.chart(credentials="models")
    world.forbidden = ("secrets",)
    sent = send(engine, asks(llm={"config": "llm.eval"}), key=True)
    assert "Secret models must hold it" in sent.notes[0]


def test_a_chart_that_names_no_secret_is_told_of(engine: Engine, world: World, bucket: str) -> None:
    world.chart()
    with pytest.raises(ConfigError, match=r"credentials\.existingSecret=NAME"):
        send(engine, asks())
    send(engine, asks(llm={"base_url": "http://vllm:8000/v1"}))


def test_the_charts_proxy_needs_no_key_of_the_persons(engine: Engine, world: World, bucket: str) -> None:
    proxy = "http://swe-argo-proxy.evals.svc:8000/v1"
    world.chart(**{"proxy-url": proxy, "credentials": "models"})
    world.put("secrets", "models", data={"TINKER_API_KEY": "a"})
    assert send(engine, asks()).notes == send(engine, asks(run_id="named", llm={"base_url": proxy})).notes == []


def test_money_for_a_whole_run_is_refused_with_the_way_out(engine: Engine, world: World, bucket: str) -> None:
    world.chart()
    said = r"max_cost_usd: a run on the cluster does not watch .*--max-cost-per-instance"
    with pytest.raises(ConfigError, match=said):
        send(engine, chosen_spec(max_cost_usd=5.0))


def test_files_of_a_spec_for_models_are_brought(engine: Engine, world: World, bucket: str, tmp_path: Path) -> None:
    world.chart(credentials="models")
    world.put("secrets", "models", data={"OPENAI_API_KEY": "a"})
    (tmp_path / "mine.j2").write_text("{{ problem_statement }}")
    (tmp_path / "factors.json").write_text("{}")
    spec = asks(
        agent={"instruction_template": str(tmp_path / "mine.j2")},
        sandbox={"resource_factors": str(tmp_path / "factors.json")},
    )
    said = json.loads(parameters(send(engine, spec).workflow)["spec"])
    held = open_store(f"s3://{bucket}/team")
    for address in (said["agent"]["instruction_template"], said["sandbox"]["resource_factors"]):
        assert held.get(address.removeprefix(f"{held.url}/"))
    own = asks(run_id="s", agent={"instruction_template": "openhands"})
    assert parameters(send(engine, own).workflow)["spec"].count("inputs/") == 0


AT_E2B = {"backend": "e2b"}
BOXES: list[tuple[str, dict[str, str] | None, str]] = [
    ("", None, "the chart names no Secret which backend e2b .*sandbox.credentials.existingSecret=NAME"),
    ("boxes", None, "there is no Secret boxes in namespace evals.*--from-literal=E2B_API_KEY="),
    ("boxes", {"E2B_DOMAIN": "a"}, "Secret boxes, which backend e2b gets its keys from, does not hold E2B_API_KEY"),
    ("boxes", {"E2B_API_KEY": "a"}, ""),
]
"""Which Secret the chart names, what it holds if it is there, the refusal if any."""


@pytest.mark.parametrize("case", BOXES)
def test_a_secret_without_which_no_sandbox_could_be_made_is_refused(
    case: tuple[str, dict[str, str] | None, str], engine: Engine, world: World, bucket: str
) -> None:
    name, secret, refusal = case
    world.chart(**{"sandbox-credentials": name or "swe-argo-no-secret"})
    if secret is not None:
        world.put("secrets", name, data=secret)
    if not refusal:
        assert parameters(send(engine, chosen_spec(sandbox=AT_E2B)).workflow)["backend"] == "e2b"
        return
    with pytest.raises(ConfigError, match=refusal):
        send(engine, chosen_spec(sandbox=AT_E2B))
    assert world.made() == []
