"""The environment as used: by its id, on the command line, and in a trainer's server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from swe_argo.steps.errors import ConfigError
from tests.model_server import Fault, model_server, play
from tests.paths import PACKAGES, ROOT

vf = pytest.importorskip("verifiers.v1", reason="needs verifiers: make test-verifiers")

from verifiers.v1.cli.eval.main import main  # noqa: E402
from verifiers.v1.serve import EnvClient, EnvServer  # noqa: E402

from swe_argo.workflows.verifiers.taskset import SweTaskConfig, SweTasksetConfig  # noqa: E402
from tests.solutions import rows  # noqa: E402
from tests.verifiers.episodes import (  # noqa: E402
    FINAL,
    GOLD,
    ID,
    INSTANCE,
    SOLVE,
    SUBMIT,
    export_mini,
    make_env,
    task_of,
)

Sandboxes = Callable[[], list[str]]


def evaluate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "from verifiers.v1.cli.eval.main import main; main()"
    command = [sys.executable, "-c", code, ID, "--no-push", "--no-rich", "-o", str(folder), *words]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{PACKAGES}"}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=1200
    )


def test_id_selects_all_components(exported: Path) -> None:
    env = make_env(exported)
    assert [type(part).__name__ for part in (env, env.taskset, task_of(env))] == ["SweEnv", "SweTaskset", "SweTask"]
    assert env._harnesses["agent"].config.id == ID
    assert env.config.agent.runtime.type == "subprocess"


def test_turn_limit_matches_verl(exported: Path) -> None:
    verl_config = yaml.safe_load((ROOT / "templates" / "verl" / "grpo.yaml").read_text())
    turns = verl_config["actor_rollout_ref"]["rollout"]["multi_turn"]["max_assistant_turns"]
    assert make_env(exported).config.agent.max_turns == turns


def test_tasks_hide_their_answers(exported: Path) -> None:
    tasks = list(make_env(exported).taskset)
    answers = rows()
    assert sorted(task.data.id for task in tasks) == sorted(answers)
    assert len({task.key for task in tasks}) == len(tasks)
    for task in tasks:
        words = task.data.model_dump_json()
        assert json.dumps(answers[task.data.id]["problem_statement"].strip().splitlines()[0])[1:-1] in words
        assert json.dumps(answers[task.data.id]["patch"])[1:-1] not in words
        assert json.dumps(answers[task.data.id]["test_patch"])[1:-1] not in words


def test_verifiers_command_evaluates(exported: Path, tmp_path: Path, sandboxes: Sandboxes) -> None:
    with model_server(play(SOLVE, SUBMIT)) as server:
        words = ["--env.taskset.data", str(exported), "--select.include.ids", INSTANCE]
        words += ["--env.taskset.task.output-chars", "300", "-m", "scripted", "--run.name", "first"]
        result = evaluate(tmp_path, *words, "--client.base-url", server.url, "--client.api-key-var", "NO_KEY")
    assert result.returncode == 0, result.stderr[-2000:]
    [episode] = [json.loads(line) for line in (tmp_path / "first" / "traces.jsonl").read_text().splitlines()]
    [trace] = episode["traces"]
    assert trace["rewards"]["reward"]["score"] == 1.0
    assert trace["info"]["patch"] == GOLD
    assert trace["task"]["key"] == f"rollouts/{INSTANCE}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--env.taskset.data", "/no/such/folder"], "/no/such/folder does not exist: create it with swe-argo export"),
        (["--env.taskset.task.suspect", "maybe"], "'drop' or 'keep'"),
        (["--env.taskset.task.output-chars", "1"], "greater than or equal to 200"),
        (["--env.taskset.backend", "docker"], "backend"),
    ],
)
def test_wrong_option_is_one_line(
    tmp_path: Path, words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vf-eval"])
    monkeypatch.setenv("COLUMNS", "300")  # a message is not wrapped
    with pytest.raises(SystemExit) as ended:
        main([ID, "-o", str(tmp_path), *words, "--dry-run"])
    printed = capsys.readouterr()
    assert line in " ".join(f"{ended.value} {printed.out} {printed.err}".split())
    assert not list(tmp_path.iterdir())


def test_scaffold_rows_are_refused(isolation: None, tmp_path: Path) -> None:
    data = export_mini(tmp_path / "out", style="r2egym", select={"instance_ids": [INSTANCE]})
    with pytest.raises(ConfigError, match="swe_argo_r2egym, which works only in verl"):
        list(make_env(data).taskset)


def test_other_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("rows")
    pq.write_table(pa.table({"prompt": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match=r"text\.parquet cannot be read"):
        list(make_env(tmp_path / "text.parquet").taskset)
    with pytest.raises(ConfigError, match=r"other\.parquet was not written by swe-argo export"):
        list(make_env(tmp_path / "other.parquet").taskset)
    with pytest.raises(ConfigError, match=r"train\.parquet cannot be read"):
        list(make_env(tmp_path).taskset)


def test_docs_list_every_option() -> None:
    text = (ROOT / "docs" / "verifiers.md").read_text()
    documented = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `env.")}
    ours = set(SweTasksetConfig.model_fields) - set(vf.TasksetConfig.model_fields)
    tasks = set(SweTaskConfig.model_fields) - set(vf.TaskConfig.model_fields)
    expected = {f"env.taskset.{name}" for name in ours} | {f"env.taskset.task.{name}" for name in tasks}
    assert {name for name in documented if name.startswith("env.taskset.")} == expected


def test_documented_config_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "verifiers.md").read_text().partition("```toml\n")[2].partition("```")[0]
    config = vf.resolve_env_config(tomllib.loads(text.replace("~/data/gym", str(tmp_path)))["env"])
    assert config.taskset.task.invalid_patch_penalty == 0.1
    assert config.agent.retries.rules[0].type == "SandboxError"
    assert (config.agent.max_turns, config.agent.runtime.type) == (50, "subprocess")


async def serve(data: Path, script: Any, act: Callable[[Any, Any, Any], Any]) -> Any:
    """Start an environment's server like a trainer; return the result of ``act`` with client, task and endpoint."""
    env = make_env(data)
    server = EnvServer(env.config, address="tcp://127.0.0.1:0")
    serving = asyncio.create_task(server.run())
    client = EnvClient(server.address)
    try:
        with model_server(script) as endpoint:
            config = vf.EvalClientConfig(base_url=endpoint.url, api_key_var="NO_KEY")
            return await act(client, task_of(env), config)
    finally:
        await client.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def test_trainer_plays_episodes(exported: Path, sandboxes: Sandboxes) -> None:
    async def play_one(client: Any, task: Any, config: Any) -> Any:
        return await client.run(config, "scripted", vf.SamplingConfig(), task.data.model_dump(mode="json"))

    episode = asyncio.run(serve(exported, play(SUBMIT, FINAL), play_one))
    [trace] = episode.traces
    assert (episode.ok, trace.reward, trace.metrics["acc"]) == (True, 1.0, 1.0)


def test_cancelled_episode_cleans_up(exported: Path, sandboxes: Sandboxes) -> None:
    async def cancel(client: Any, task: Any, config: Any) -> None:
        request = client.run(config, "scripted", vf.SamplingConfig(), task.data.model_dump(mode="json"))
        running = asyncio.create_task(request)
        while not sandboxes():
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        while sandboxes():
            await asyncio.sleep(0.01)

    asyncio.run(serve(exported, play(Fault(how="hang")), cancel))
