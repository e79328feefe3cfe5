"""Exports for verl: rows, the store beside them, and no secrets of the dataset in either."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from swe_argo.steps.agents.opening import STYLES
from swe_argo.steps.agents.templates import template_source
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Answer, Instance, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.recipe import AgentProgram, Recipe
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets import load
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.records import read_record
from swe_argo.workflows.rollouts.task import FILES, SCHEMA
from swe_argo.workflows.verl.dataset import (
    RUN,
    SAMPLE,
    STORE,
    VerlFiles,
    VerlOptions,
    export_dataset,
    export_run,
    sample_spec,
    split_ids,
)
from tests.paths import DATA, ROOT, needs_data
from tests.steps.agents.solved_units import instance, run_file
from tests.steps.families.test_real_rows import FAMILIES

Row = dict[str, Any]
HINT = "Did you look at the rounding in money.py?"
FILES_OF_ROWS = {
    "swebench": "verified_test.parquet",
    "swebench lite": "lite_test.parquet",
    "swebench multilingual": "multilingual_test.parquet",
    "swebench multimodal": "multimodal_dev.parquet",
}


def rows_of(files: VerlFiles) -> list[Row]:
    tables = [pq.read_table(files.path / name) for split, name in FILES.items() if files.rows[split]]
    assert all(table.schema.equals(SCHEMA) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    file = tmp_path / "elsewhere.py"
    file.write_text("def connect(spec):\n    raise AssertionError('an export needs no sandbox')\n")
    return f"{file}:connect"


def test_exported_rows_name_a_store(tmp_path: Path) -> None:
    more = {"sandbox": {"cpus": 2}, "agent": {"max_steps": 9}, "store": str(tmp_path / "none")}
    files = export_dataset(RunSpec.model_validate({"dataset": "mini", **more}), VerlOptions(out=tmp_path / "out"))
    assert files.rows == {"train": 10, "val": 2}
    rows = rows_of(files)
    assert not (tmp_path / "none").exists()
    store = open_store(rows[0]["extra_info"]["store"])
    assert Path(store.url) == tmp_path / "out" / STORE
    run = RunFile.from_bytes(store.get(key(RunFile, RUN)))
    assert (run.spec.sandbox.cpus, run.spec.agent.max_steps, run.spec.store) == (2, 9, store.url)
    assert len({row["extra_info"]["instance_id"] for row in rows}) == 12
    for row in rows:
        info = row["extra_info"]
        name = (info["run"], info["instance_id"])
        instance = Instance.from_bytes(store.get(key(Instance, *name)))
        assert Answer.from_bytes(store.get(key(Answer, *name))).instance_id == instance.instance_id
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert instance.problem_statement in row["prompt"][1]["content"]
        assert "9 turns" in row["prompt"][0]["content"]
        assert (row["agent_name"], row["data_source"], info["need_tools_kwargs"]) == ("swe_argo", "mini", True)
        assert row["reward_model"]["ground_truth"] == ""


def test_sample_spec_defaults_to_docker() -> None:
    assert sample_spec(RunSpec()).sandbox.backend == "docker"
    chosen = RunSpec.model_validate({"sandbox": {"backend": "local"}})
    assert sample_spec(chosen) == chosen


def test_sample_has_rows_for_a_step() -> None:
    """verl makes no step of fewer rows than a batch: its trainer divides by the steps of an epoch."""
    options = VerlOptions()
    train = split_ids([str(number) for number in range(SAMPLE)], options.val_ratio, options.seed)["train"]
    config = yaml.safe_load((ROOT / "templates" / "verl" / "grpo.yaml").read_text())
    batch = config["data"]["train_batch_size"]
    assert len(train) >= batch >= config["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"] > 0


def test_split_is_determined_by_seed() -> None:
    ids = [f"a__b-{number}" for number in range(100)]
    first, again, different = (split_ids(ids, 0.29, seed) for seed in (42, 42, 43))
    assert first == again != different
    assert sorted(first["train"] + first["val"]) == sorted(ids)
    assert len(first["val"]) == 29
    assert split_ids(ids, 0, 1)["val"] == split_ids(ids, 1, 1)["train"] == []
    with pytest.raises(ConfigError, match="--val-ratio"):
        split_ids(ids, 1.2, 1)


@pytest.mark.parametrize("style", ["r2egym", "mini-swe-agent"])
def test_scaffold_rows_use_its_own_loop(style: str, tmp_path: Path) -> None:
    spec = RunSpec.model_validate({"dataset": "mini", "agent": {"name": style}})
    files = export_dataset(spec, VerlOptions(style=style, out=tmp_path / "out"))
    run = RunFile.from_bytes(open_store(str(tmp_path / "out" / STORE)).get(key(RunFile, RUN)))
    assert {row["agent_name"] for row in rows_of(files)} == {f"swe_argo_{style.replace('-', '_')}"}
    assert (run.spec.agent, run.fn_calling) == (AgentSpec(name=style), False)
    assert run.instruction == template_source(run.spec.agent)


def fill(store: Store, run: RunFile, ids: list[str], attempts: int = 1, **fields: Any) -> None:
    about: dict[str, Any] = {"begins": Stage.NONE, "repo": "a/b", "image": "i"}
    units = [Unit(instance_id=name, attempt=number, **about) for name in ids for number in range(1, attempts + 1)]
    store.put(key(RunFile, "night"), run.to_bytes())
    store.put(key(Plan, "night"), Plan(run_id="night", units=units).to_bytes())
    for name in ids:
        store.put(key(Instance, "night", name), instance(name).model_copy(update=fields).to_bytes())
        store.put(key(Answer, "night", name), Answer(instance_id=name).to_bytes())


def test_exported_instances_lack_hints(store: Store, tmp_path: Path) -> None:
    run = run_file("r2egym").model_copy(update={"instruction": "{{ problem_statement }} {{ hints_text }}"})
    run.spec.agent.hints = True
    fill(store, run, ["a__b-1", "a__b-2", "a__b-3"], attempts=2, hints_text=HINT)
    files = export_run(store, "night", VerlOptions(val_ratio=0.34, out=tmp_path / "out"))
    assert files.rows == {"train": 2, "val": 1}
    assert {row["agent_name"] for row in rows_of(files)} == {"swe_argo_r2egym"}
    assert HINT not in json.dumps(rows_of(files))
    copied = open_store(str(tmp_path / "out" / STORE))
    assert all(HINT.encode() not in copied.get(name) for name in copied.keys("runs/"))
    plan = Plan.from_bytes(copied.get(key(Plan, "night")))
    assert [(unit.attempt, unit.begins) for unit in plan.units] == [(1, Stage.SOLVE)] * 3


def test_agent_program_run_is_exported(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "from"), create=True)
    program = AgentProgram(recipe=Recipe(name="mine", command=["mine", "{instruction}"]))
    fields = {"program": program, "instruction": "Fix this: {{ problem_statement }}"}
    fill(store, run_file("program").model_copy(update=fields), ["a__b-1"])
    files = export_run(store, "night", VerlOptions(val_ratio=0, out=tmp_path / "own"))
    (row,) = rows_of(files)
    assert row["agent_name"] == "swe_argo_program"
    assert row["prompt"] == [{"role": "user", "content": "Fix this: It does not work."}]
    assert read_record(open_store(str(tmp_path / "own" / STORE)), RunFile, "night").program == program
    files = export_run(store, "night", VerlOptions(style="tools", val_ratio=0, out=tmp_path / "tools"))
    assert rows_of(files)[0]["agent_name"] == "swe_argo"
    assert read_record(open_store(str(tmp_path / "tools" / STORE)), RunFile, "night").program is None


def secrets_of(row: Row) -> Iterator[str]:
    """Yield the secrets of a dataset's row: its tests, its hints, lines of its patches, the commit of its fix."""
    for column in ("FAIL_TO_PASS", "PASS_TO_PASS", "expected_output_json"):
        listed = row.get(column) or []
        yield from (name for name in (json.loads(listed) if isinstance(listed, str) else listed) if len(name) >= 12)
    codes = json.loads(row.get("execution_result_content") or "{}").get("test_file_codes", [])
    changed = json.loads(row.get("parsed_commit_content") or "{}").get("file_diffs", [])
    whole = [row.get(name) for name in ("hints_text", "test_patch", "patch", "commit_hash", "docker_image")]
    text = "\n".join(str(part or "") for part in (*whole, *codes, *(part["new_file_content"] for part in changed)))
    yield from (line for line in (line.lstrip("+- ").strip() for line in text.splitlines()) if len(line) >= 20)
    yield from ("FAIL_TO_PASS", "PASS_TO_PASS", "hints_text", "eval_script", "test_patch")


def leaks(row: Row, issue: str, secrets: set[str]) -> set[str]:
    """Return the secrets that an exported row contains outside its issue text."""
    agent_view = "\n".join(message["content"] for message in row["prompt"]).replace(issue, "")
    agent_view += json.dumps({name: value for name, value in row.items() if name != "prompt"})
    return {secret for secret in secrets if secret in agent_view}


@needs_data
@pytest.mark.parametrize("name", [*FILES_OF_ROWS, *FAMILIES])
def test_rows_contain_no_secrets(name: str, tmp_path: Path, elsewhere: str) -> None:
    rows = DATA / "swebench" / FILES_OF_ROWS.get(name, "")
    if name in FAMILIES:
        rows = tmp_path / "rows.jsonl"
        rows.write_text("".join(f"{json.dumps(row)}\n" for row in FAMILIES[name]()))
    source = {row["instance_id"]: row for row in load.load(str(rows), "test").rows}
    spec = RunSpec.model_validate({
        "dataset": str(rows),
        "sandbox": {"backend": elsewhere},
        "select": {"skip_not_gradeable": True, "shuffle_seed": 1, "k": 60},
    })  # fmt: skip
    first = export_dataset(spec, VerlOptions(out=tmp_path / "tools"))
    store = open_store(str(first.path / STORE))
    secrets = {name: set(secrets_of(row)) for name, row in source.items()}
    checked = 0
    for style in STYLES:
        files = export_run(store, RUN, VerlOptions(style=style, out=tmp_path / style, force=True))
        for row in rows_of(files):
            instance_id = row["extra_info"]["instance_id"]
            issue = Instance.from_bytes(store.get(key(Instance, RUN, instance_id))).problem_statement
            assert issue.strip() in "\n".join(message["content"] for message in row["prompt"])
            assert leaks(row, issue, secrets[instance_id]) == set(), f"{style}: {instance_id}"
            checked += len(secrets[instance_id])
    assert checked > len(STYLES) * sum(first.rows.values())


def test_leak_check_finds_secrets() -> None:
    row = {"prompt": [{"content": "Repair it.\nissue\nself.total = round(total, 2)"}], "extra_info": {"x": "test_a"}}
    secrets = {"self.total = round(total, 2)", "test_a"}
    assert leaks(row, "issue", secrets | {"issue"}) == secrets
