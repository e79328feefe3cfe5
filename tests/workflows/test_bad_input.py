"""Every wrong request is one clear line and exit 64, and leaves nothing half-written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workflows.command import QUICK, ids, swe_argo

Files = Callable[[Path], list[str]]


def _write(name: str, content: str, *flags: str) -> Files:
    def make(folder: Path) -> list[str]:
        (folder / name).write_text(content)
        return [flag.replace("FILE", str(folder / name)) for flag in flags]

    return make


def _words(*flags: str) -> Files:
    return lambda _folder: list(flags)


ROW = {"instance_id": "o__r-1", "repo": "o/r", "base_commit": "c", "version": "1", "problem_statement": "p"}
PREDICTION = {"instance_id": QUICK[0], "model_name_or_path": "m", "model_patch": ""}

CASES: dict[str, tuple[Files, str]] = {
    "dataset": (_words("--dataset", "verifed"), "verified"),
    "split": (_words("--split", "tset"), "tset"),
    "id": (_words(*ids("mini__slugkit-1", "mini__nope-1", "mini__nope-2")), "mini__nope-2"),
    "agent": (_words("--agent", "golden"), "agent.name"),
    "backend": (_words("--backend", "dcoker"), "sandbox.backend"),
    "field": (_words("--set", "agent.stps=1"), "agent.stps"),
    "flag": (_words("--datset", "mini"), "--datset"),
    "regex": (_words("--regex", "("), "("),
    "repository": (_words("--repo", "o/none"), "o/none"),
    "empty selection": (_words("--start-idx", "1000"), "start_idx"),
    "toml": (_write("run.toml", "dataset = [", "FILE"), "is not TOML"),
    "toml key": (_write("run.toml", "datset = 'x'", "FILE"), "did you mean 'dataset'"),
    "rows of no json": (_write("rows.jsonl", "{}\n{oops\n", "--dataset", "FILE"), "rows.jsonl"),
    "rows of no parquet": (_write("rows.parquet", "no", "--dataset", "FILE"), "rows.parquet"),
    "classic rows": (_write("rows.jsonl", json.dumps(ROW | {"FAIL_TO_PASS": "[]", "PASS_TO_PASS": "[]", "patch": "",
                            "test_patch": ""}) + "\n", "--dataset", "FILE"), "eval_script"),
    "images for an agent that shows none": (_words("--agent", "gold", "--issue-images"), "gold cannot show images"),
    "odd id": (
        _write("rows.jsonl", json.dumps(ROW | {"instance_id": "../up", "test_patch": ""}) + "\n", "--dataset", "FILE"),
        "../up",
    ),
    "rows of no known family": (
        _write("rows.jsonl", json.dumps(ROW) + "\n", "--dataset", "FILE"), "no task family: it has instance_id"),
    "no predictions file": (_words("--predictions", "none.jsonl"), "none.jsonl"),
    "no predictions at all": (_words("--agent", "given"), "--predictions"),
    "predictions of no json": (_write("p.jsonl", "{oops\n", "--predictions", "FILE"), "p.jsonl"),
    "predictions without a key": (_write("p.jsonl", '{"model_patch": ""}\n', "--predictions", "FILE"), "instance_id"),
    "predictions of unknown ids": (
        _write("p.json", json.dumps([PREDICTION | {"instance_id": "a__b-1"}]), "--predictions", "FILE"), "a__b-1"),
    "predictions of another suffix": (_write("p.txt", "", "--predictions", "FILE"), ".jsonl"),
    "no recordings": (_words("--agent", "replay"), "--trajectories"),
    "images not unpacked": (_words("--local-images", "/nowhere", "--agent", "gold"), "/nowhere"),
    "run id": (_words("--run-id", "a/b"), "a/b"),
    "number": (_words("--workers", "many"), "--workers"),
    "no group of models": (_words("--agent", "openhands", "--llm-config", "llm.a"), "config.toml"),
    "another group of models": (
        _write("c.toml", '[llm.mine]\nmodel = "openai/m"\n', "--llm-config", "llm.mien", "--llm-config-file", "FILE"),
        "did you mean llm.mine"),
    "no model": (_words("--agent", "openhands"), "--model"),
    "group without a model": (
        _write("c.toml", "[llm.a]\n", "--agent", "openhands", "--llm-config", "llm.a", "--llm-config-file", "FILE"),
        "a model in llm.a, which has none"),
    "word for function calling": (_words("--model", "openai/m", "--use_fn_calling", "perhaps"), "agent.use_fn_calling"),
    "switch": (_words("--hints=perhaps"), "--hints"),
    "password in an address": (_words("--model", "openai/m", "--base-url", "http://me:secret@h/v1"), "llm.base_url"),
    "endpoint that is not there": (_words("--model", "openai/m", "--base-url", "http://127.0.0.1:9/v1"), "127.0.0.1:9"),
    "factors of nobody": (_write("f.json", '{"mini__slugkit-9": 2}', "--resource-factors", "FILE"), "mini__slugkit-"),
    "factor of zero": (_write("f.json", '{"mini__slugkit-1": 0}', "--resource-factors", "FILE"), "not a number above"),
    "factors that are none": (_write("f.json", "[1]", "--resource-factors", "FILE"), "instance ids and factors"),
    "factors of no json": (_write("f.json", "{", "--resource-factors", "FILE"), "is not JSON"),
    "no factors": (_words("--resource-factors", "none.json"), "none.json"),
    "money": (_words("--max-cost", "0"), "max_cost_usd"),
    "ended before it is told": (
        _words("--max-steps", "30", "--max-steps-absolute", "20"), "30, when the agent must finish, not 20"),
    "prefix without an address": (
        _words("--model", "anthropic/claude-4"), "its endpoint with --base-url or LLM_BASE_URL"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_run_refuses_invalid_request(name: str, tmp_path: Path) -> None:
    make, output = CASES[name]
    store = tmp_path / "store"
    words = make(tmp_path)
    words += [] if "--run-id" in words else ["--run-id", "r"]
    words += ["--allow-host"]  # on a machine without bubblewrap, too, it is the case's own mistake that is told
    result = swe_argo("run", *words, "--store", str(store))
    assert result.returncode == (75 if name == "endpoint that is not there" else 64), result.stdout + result.stderr
    messages = [line for line in result.stderr.strip().splitlines() if not line.startswith("note: ")]
    if result.returncode == 75:  # nothing was wrong with the request: it may be made again
        assert messages.pop().startswith("continue with: swe-argo run ")
    assert len(messages) == 1
    assert output in messages[0]
    assert "Traceback" not in result.stderr
    assert not list(store.rglob("*")) if store.exists() else True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "none"], "there is no run 'none'"),
        (["report", "none"], "none"),
        (["regrade", "none"], "there is no run 'none'"),
        (["grade-log", "-d", "mini"], "--corpus DIR"),
        (["grade-log", "-d", "mini", "-i", "x", "--log", "y"], "no instance 'x'"),
        (["grade-log", "-d", "mini", "-i", QUICK[0], "--log", "none.txt"], "none.txt"),
        (["frobnicate"], "frobnicate"),
        (["run", "--store", "/proc/none"], "cannot write to /proc/none"),
        (["run", "--store", "ftp://x/y"], "neither a folder nor s3://bucket/prefix"),
        (["run", "--store", "s3//bucket/x"], "neither a folder nor s3://bucket/prefix"),
    ],
)
def test_commands_refuse_in_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    result = swe_argo(*words, cwd=tmp_path)
    assert result.returncode == 64, result.stdout + result.stderr
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_plan_refuses_agent_on_open_host(tmp_path: Path) -> None:
    recorded = {
        "instance_id": QUICK[0],
        "history": [],
        "test_result": {"git_patch": ""},
        "instruction": "",
        "metrics": {},
    }
    (tmp_path / "output.jsonl").write_text(json.dumps(recorded) + "\n")
    words = [
        "run",
        "--trajectories",
        str(tmp_path / "output.jsonl"),
        "--store",
        str(tmp_path / "store"),
        "--run-id",
        "r",
    ]
    result = swe_argo(*words, *ids(QUICK[0]), env={"SWE_ARGO_ISOLATION": "none"})
    assert result.returncode == 64, result.stdout + result.stderr
    assert "--allow-host" in result.stderr
    assert not list((tmp_path / "store").rglob("*"))
    allowed = swe_argo(*words, "--allow-host", *ids(QUICK[0]), env={"SWE_ARGO_ISOLATION": "none"})
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr


@pytest.mark.parametrize(
    ("name", "text"), [("RUNTIME", "modal"), ("K", "ten"), ("EVAL_MAX_RETRIES", "-2"), ("LOG_LEVEL", "loud")]
)
def test_run_refuses_invalid_variable(name: str, text: str, tmp_path: Path) -> None:
    result = swe_argo("run", "--run-id", "r", "--store", str(tmp_path / "store"), env={name: text})
    assert result.returncode == 64, result.stdout + result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert name in result.stderr
    assert not list(tmp_path.iterdir())


def test_run_names_missing_docker_engine(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/none.sock"
    words = ["run", "--backend", "docker", "--store", str(tmp_path / "store"), "--run-id", "r"]
    result = swe_argo(*words, env={"DOCKER_HOST": nowhere})
    assert result.returncode == 64
    assert nowhere in result.stderr
    assert "--backend local" in result.stderr
    assert not list((tmp_path / "store").rglob("*"))


@pytest.mark.parametrize("variables", [{"HOME": "/proc"}, {"SWE_ARGO_HOME": "/proc/x"}, {"SWE_ARGO_HOME": "~nobody-"}])
@pytest.mark.long
def test_unwritable_home_is_refused(variables: dict[str, str], tmp_path: Path) -> None:
    env = {"SWE_ARGO_HOME": ""} | variables
    result = swe_argo("run", *ids(QUICK[0]), "--store", str(tmp_path / "store"), "--run-id", "r", env=env)
    assert result.returncode == 64, result.stdout + result.stderr
    (message,) = result.stderr.strip().splitlines()
    assert "SWE_ARGO_HOME" in message
    assert "/proc/" in message or "has no home folder" in message
    assert not list((tmp_path / "store").rglob("*"))
    assert "Traceback" not in swe_argo("clean", env=env).stderr
    doctor = swe_argo("doctor", env=env | {"COLUMNS": "200"})
    assert re.search(r"^home +no ", doctor.stdout, re.MULTILINE), doctor.stdout + doctor.stderr
    assert "SWE_ARGO_HOME" in doctor.stdout


def _without_rights(folder: Path) -> list[str]:
    """Make a folder that commands begun with these words can neither read nor write; root gives up what lets it."""
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0)
        return []
    folder.chmod(0o700)
    os.chown(folder, 54321, 54321)
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "SWE_ARGO_HOME"])
@pytest.mark.long
def test_foreign_home_is_refused(variable: str, tmp_path: Path) -> None:
    words = _without_rights(tmp_path / "theirs")
    env = {"SWE_ARGO_HOME": "", "XDG_CACHE_HOME": ""} | {variable: str(tmp_path / "theirs")}
    spec = ["run", *ids(QUICK[0]), "--store", str(tmp_path / "store"), "--run-id", "r"]
    result = subprocess.run(
        [*words, sys.executable, "-m", "swe_argo.workflows.cli.main", *spec],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | env,
    )
    assert result.returncode == 64, result.stdout + result.stderr
    (message,) = result.stderr.strip().splitlines()
    assert f"home: cannot use {tmp_path}/theirs/" in message
    assert "set SWE_ARGO_HOME" in message
