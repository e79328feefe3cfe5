"""Tasks in Harbor's form through the whole chain on this machine: what counts is what is left in the machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.datasets.mini import HARBOR_TASKS
from swe_argo.steps.errors import EXIT_CONFIG
from swe_argo.steps.sandbox.local import bubblewrap
from tests.workflows.command import summary, swe_argo

pytestmark = pytest.mark.skipif(
    bubblewrap.probe() is not None, reason="tasks need a machine of their own: bubblewrap is not used here"
)

AGENT = """
from swe_argo.steps.contracts.trajectory import StopReason


class Worker:
    def act(self, task):
        task.recorder.add_message("user", task.instance.problem_statement)
        result = task.box.exec({command!r}, timeout_s=60, merge=True)
        task.recorder.add_message("user", result.stdout.decode())
        return StopReason.FINISHED
"""
GREETING = 'echo "$GREETING, world" >/app/answer.txt; mkdir -p /var/lib/greeting; touch /var/lib/greeting/done; '
WRITTEN = [(path, "new") for path in ("/app/answer.txt", "/var/lib/greeting", "/var/lib/greeting/done")]
PRIVATE = "chmod 600 /var/lib/greeting/done; "


def run(store: Path, agent: str, *more: str, task: Path | str = "greeting", run_id: str = "r") -> Path:
    """Run one task, a bundled one by name; the folder of its unit."""
    result = swe_argo(
        *("run", "--dataset", str(HARBOR_TASKS / task), "--store", str(store), "--run-id", run_id, "--agent", agent),
        *more,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (unit,) = (store / "runs" / run_id / "units").glob("*/1")
    return unit


def act(folder: Path, command: str, *more: str, **options: Any) -> Path:
    (folder / "worker.py").write_text(AGENT.format(command=command))
    return run(folder / "store", f"{folder}/worker.py:Worker", *more, **options)


def grade(unit: Path) -> dict[str, Any]:
    return dict(json.loads((unit / "grade.json").read_text()))


@pytest.mark.long
def test_files_outside_workdir_count(tmp_path: Path) -> None:
    unit = act(tmp_path, GREETING + PRIVATE)
    assert (grade(unit)["outcome"], grade(unit)["reward"]) == ("resolved", 1.0)
    assert (unit / "layer.tgz").is_file()
    assert (unit / "patch.diff").read_bytes() == b""
    solved = json.loads((unit / "solve.json").read_text())
    assert solved["history"] is None
    assert solved["layer_bytes"] == (unit / "layer.tgz").stat().st_size
    assert [(entry["path"], entry["change"]) for entry in solved["layer"]["first"]] == WRITTEN
    page = (tmp_path / "store/runs/r/report/instances/mini__greeting.1.html").read_text()
    output = swe_argo("show", "r", "mini__greeting", "--store", str(tmp_path / "store")).stdout
    for path, _ in WRITTEN:
        assert f"+ {path}" in page
        assert f"+ {path}" in output
    assert f"{len(WRITTEN)} new" in page
    assert f"changed: {len(WRITTEN)} new" in output
    assert grade(unit)["integrity"] == {"verdict": "unconfirmed", "findings": []}
    assert grade(unit)["confirmation"]["outcome"] == "unavailable"
    official = json.loads((tmp_path / "store" / "runs" / "r" / "report" / "Worker.r.json").read_text())
    assert (official["resolved_ids"], official["empty_patch_ids"]) == (["mini__greeting"], [])
    unit = act(tmp_path, GREETING, run_id="open")
    assert grade(unit)["outcome"] == "unresolved"
    assert "others may read it" in (unit / "test_output.txt").read_text()
    # Graded once more, as given.
    unit = run(tmp_path / "store", "given", "--predictions", "run:r", run_id="again")
    assert grade(unit)["outcome"] == "resolved"


def test_partial_reward_is_a_number(tmp_path: Path) -> None:
    unit = act(tmp_path, """echo '{"bolt": 2.4, "nut": 0.6, "gear": 1}' >prices.json""", task="unit-prices")
    assert (grade(unit)["outcome"], grade(unit)["reward"]) == ("unresolved", 0.5)
    report = json.loads((unit / "report.json").read_text())["mini__unit-prices"]
    assert report["rewards"] == {"products": 3.0}
    assert summary(str(tmp_path / "store"), "r").mean_reward == 0.5


def test_agent_sees_no_answer_files(tmp_path: Path) -> None:
    unit = act(tmp_path, "ls -d /app /testbed /logs/* /tests /solution; pwd -P; ls; env | grep GREET")
    output = json.loads((unit / "trajectory.json").read_text())["steps"][-1]["message"]
    assert [line for line in output.splitlines() if "cannot access" not in line] == [
        *("/app", "/logs/agent", "/logs/artifacts", "/logs/verifier", "/testbed", "/app", "GREETING=hello")
    ]
    assert grade(unit)["outcome"] == "empty_patch"
    assert (unit / "layer.tgz").read_bytes() == b"", "it takes the place of one that a try before left"
    unit = run(tmp_path / "store", "given", "--predictions", "run:r", run_id="again")
    assert grade(unit)["outcome"] == "empty_patch"


@pytest.mark.long
def test_canary_uses_solutions(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    shutil.copytree(HARBOR_TASKS / "greeting", tmp_path / "tasks" / "greeting")
    ignored = shutil.ignore_patterns("solution")
    shutil.copytree(HARBOR_TASKS / "unit-prices", tmp_path / "tasks" / "a-without", ignore=ignored)
    (tmp_path / "worker.py").write_text(AGENT.format(command="true"))
    words = ("--agent", f"{tmp_path}/worker.py:Worker", "--store", str(tmp_path / "s"), "--run-id", "r")
    result = swe_argo("run", "--dataset", str(tmp_path / "tasks"), *words, "--canary", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Canary: the reference patches of 1 instance are resolved" in " ".join(result.stdout.split())


def test_planted_files_gain_nothing(tmp_path: Path) -> None:
    planted = (
        "echo 1 >/logs/verifier/reward.txt; mkdir /tests; echo 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh; "
    )
    unit = act(tmp_path, planted + "(sleep 30; echo 1 >/logs/verifier/reward.txt) & ")
    assert grade(unit)["outcome"] == "unresolved"
    (finding,) = grade(unit)["integrity"]["findings"]
    assert finding["code"] == "layer_plants_verifier_files"


@pytest.mark.long
def test_broken_verifier_gives_no_reward(tmp_path: Path) -> None:
    unit = act(tmp_path, "mkdir -p /app/prices.json; ln -s /nowhere /app/orders.link", task="unit-prices")
    assert grade(unit)["outcome"] == "unresolved"  # that verifier knows of it
    (tmp_path / "task").mkdir()
    task = tmp_path / "task" / "fragile"
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "task.toml").write_text("[environment]\nworkdir = '/app'\n")
    (task / "instruction.md").write_text("Do it.\n")
    (task / "environment" / "Dockerfile").write_text("FROM scratch\nWORKDIR /app\n")
    (task / "tests" / "test.sh").write_text("#!/bin/bash\ncat /app/number >/logs/verifier/reward.txt\n")
    (tmp_path / "worker.py").write_text(AGENT.format(command="echo NaN >/app/number"))
    result = swe_argo(
        *("run", "--dataset", str(tmp_path / "task"), "--store", str(tmp_path / "s"), "--run-id", "r"),
        *("--agent", f"{tmp_path}/worker.py:Worker"),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (unit,) = (tmp_path / "s" / "runs" / "r" / "units").glob("*/1")
    assert grade(unit)["outcome"] == "no_reward"
    assert [finding["code"] for finding in grade(unit)["integrity"]["findings"]] == [
        *("verifier_gave_no_reward", "second_run")
    ]
    assert "resolved 0/1, infra 0" in result.stdout
    assert "No reward" in (tmp_path / "s" / "runs" / "r" / "report" / "report.html").read_text()


def test_missing_solution_is_no_failure(tmp_path: Path) -> None:
    shutil.copytree(HARBOR_TASKS / "greeting", tmp_path / "greeting", ignore=shutil.ignore_patterns("solution"))
    words = ("--agent", "gold", "--store", str(tmp_path / "s"))
    result = swe_argo("run", "--dataset", str(tmp_path / "greeting"), *words)
    assert "resolved 0/1, infra 0" in result.stdout, result.stdout + result.stderr
    (unit,) = (tmp_path / "s" / "runs").glob("*/units/*/1")
    assert grade(unit)["outcome"] == "empty_patch"


@pytest.mark.long
def test_validation_reports_each_task(tmp_path: Path) -> None:
    for name in ("fails", "unread"):
        shutil.copytree(HARBOR_TASKS / "greeting", tmp_path / "tasks" / name)
    (tmp_path / "tasks/fails/solution/solve.sh").write_text("echo no such tool; exit 3\n")
    (tmp_path / "tasks/unread/task.toml").write_text("[task\n")
    words = (str(tmp_path / "tasks"), "--store", str(tmp_path / "s"), "--run-id", "v", "--gold-runs", "1")
    result = swe_argo("validate", *words)
    assert "v: 0 of 2 valid, 1 gold_fails, 1 not_gradeable; page: " in result.stdout, result.stdout + result.stderr
    validation = json.loads((tmp_path / "s/validations/tasks/v/validation.json").read_text())
    reasons = {instance["instance_id"]: instance["reason"] for instance in validation["instances"]}
    ended = "the reference solution ended with exit code 3: no such tool"
    assert reasons["mini__greeting"].endswith(f"in 1 of 1 gold run: {ended}")
    assert reasons["unread"].startswith("task.toml: ")


def test_patch_agents_are_refused(tmp_path: Path) -> None:
    (tmp_path / "preds.jsonl").write_text(
        '{"instance_id": "mini__greeting", "model_patch": "", "model_name_or_path": "m"}\n'
    )
    words = ("--agent", "given", "--predictions", f"{tmp_path}/preds.jsonl", "--store", str(tmp_path / "s"))
    result = swe_argo("run", "--dataset", "harbor:mini", *words)
    assert result.returncode == EXIT_CONFIG
    (line,) = result.stderr.strip().splitlines()
    assert "agent given produces patches, but the submission of mini__greeting is files" in line


def test_dockerfile_run_needs_docker(tmp_path: Path) -> None:
    shutil.copytree(HARBOR_TASKS / "greeting", tmp_path / "greeting")
    file = tmp_path / "greeting" / "environment" / "Dockerfile"
    file.write_text(file.read_text() + "RUN apt-get update\n")
    result = swe_argo(
        *("run", "--dataset", str(tmp_path / "greeting"), "--agent", "idle", "--store", str(tmp_path / "s")),
        env={"SWE_ARGO_HOME": str(tmp_path / "home")},
    )
    assert result.returncode == EXIT_CONFIG
    assert "its Dockerfile has RUN: use --backend docker" in result.stderr
