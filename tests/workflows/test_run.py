"""``swe-argo run`` on the bundled dataset: verdicts, files, resuming, exit codes, words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.store import open_store
from swe_argo.steps.store.runs import record_of
from tests.workflows.command import QUICK, ids, official, plan, summary, swe_argo

pytestmark = pytest.mark.xdist_group("run")


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a finished gold run."""
    store = str(tmp_path_factory.mktemp("store"))
    result = swe_argo("run", "--store", store, "--run-id", "gold", "-j", "2", *ids(*QUICK))
    assert result.returncode == 0, result.stdout + result.stderr
    return store


def test_run_resolves_all_gold_patches(gold: str) -> None:
    result = swe_argo("report", "gold", "--store", gold)
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith("resolved 4/4, infra 0, report: ")
    assert Path(last.partition("report: ")[2]).is_file()


def test_idle_agent_resolves_none(tmp_path: Path) -> None:
    result = swe_argo("run", "--store", str(tmp_path), "--run-id", "idle", "--agent", "idle", *ids(*QUICK[:2]))
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path), "idle").headline.resolved == 0
    for name in QUICK[:2]:
        unit = tmp_path / "runs" / "idle" / "units" / name / "1"
        assert json.loads((unit / "report.json").read_text())[name]["resolved"] is False
        assert (unit / "patch.diff").read_bytes() == b""


def test_report_has_official_files(gold: str) -> None:
    logs = Path(gold, "runs", "gold", "report", "leaderboard", "logs", QUICK[0])
    names = {"eval.sh", "patch.diff", "report.json", "run_instance.log", "test_output.txt"}
    assert {path.name for path in logs.iterdir()} == names
    report = json.loads(official(gold, "gold", "gold"))
    assert report["resolved_ids"] == sorted(QUICK)
    assert report["schema_version"] == 2


def test_run_does_nothing_when_finished(gold: str) -> None:
    before = {name: open_store(gold).get(name) for name in open_store(gold).keys("runs/gold/units/")}
    result = swe_argo("run", "--store", gold, "--run-id", "gold", *ids(*QUICK))
    assert result.returncode == 0
    assert "0 units to do, 4 done before" in result.stdout
    assert {name: open_store(gold).get(name) for name in open_store(gold).keys("runs/gold/units/")} == before


@pytest.mark.long
def test_older_spec_can_resume(gold: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    shutil.copytree(gold, store)
    file = Path(store, "runs", "gold", "run.json")
    run = json.loads(file.read_text())
    sandbox = {name: value for name, value in run["spec"]["sandbox"].items() if not isinstance(value, dict)}
    flat = {"local_images": None, "keep_images": True, "disk_budget_gb": 9.0, "namespace": "evals"}
    run["spec"]["sandbox"] = sandbox | flat | {"kube_context": None, "node_selector": []}
    file.write_text(json.dumps(run))
    assert swe_argo("report", "gold", "--store", store).stdout.strip().splitlines()[-1].startswith("resolved 4/4")
    shutil.rmtree(Path(store, "runs", "gold", "units", QUICK[0]))
    result = swe_argo("run", "--store", store, "--run-id", "gold", "--disk-budget-gb", "5", *ids(*QUICK))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 unit to do, 3 done before" in result.stdout
    assert json.loads(file.read_text())["spec"]["sandbox"]["docker"] == {"keep_images": False, "disk_budget_gb": 5.0}


def test_run_does_only_missing_units(gold: str) -> None:
    store = open_store(gold)
    lost = f"runs/gold/units/{QUICK[1]}/1/grade.json"
    log = store.get(f"runs/gold/units/{QUICK[0]}/1/run_instance.log")
    store.delete_many([lost])
    result = swe_argo("run", "--store", gold, "--run-id", "gold", *ids(*QUICK))
    assert "1 unit to do, 3 done before" in result.stdout
    assert store.get(lost)
    assert store.get(f"runs/gold/units/{QUICK[0]}/1/run_instance.log") == log


def test_run_refuses_changed_fields(gold: str) -> None:
    result = swe_argo("run", "--store", gold, "--run-id", "gold", "--split", "dev", "--timeout", "60", *ids(*QUICK))
    assert result.returncode == 64
    assert "split was 'test', now 'dev'" in result.stderr
    assert "grading.timeout_s was 1800, now 60" in result.stderr
    assert len(plan(gold, "gold").units) == 4


def test_run_allows_changed_worker_count(gold: str) -> None:
    assert swe_argo("run", "--store", gold, "--run-id", "gold", "--workers", "1", *ids(*QUICK)).returncode == 0


def test_runs_and_show_describe_run(gold: str) -> None:
    assert "4/4" in swe_argo("runs", "--store", gold).stdout
    assert "resolved 4/4" in swe_argo("show", "gold", "--store", gold).stdout
    text = swe_argo("show", "gold", QUICK[0], "--store", gold).stdout
    assert "Fail to pass" in text
    assert "diff --git" in text


@pytest.mark.long
def test_regrade_keeps_old_verdicts(gold: str) -> None:
    before = open_store(gold).get(f"runs/gold/units/{QUICK[0]}/1/grade.json")
    result = swe_argo("regrade", "gold", "--store", gold, "-j", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 of 4 verdicts unchanged" in result.stdout
    assert open_store(gold).get(f"runs/gold/units/{QUICK[0]}/1/grade.json") == before
    assert summary(gold, "gold.regrade-1").headline.resolved == 4
    first, again = (record_of(open_store(gold), RunFile, run) for run in ("gold", "gold.regrade-1"))
    assert first.draw_key == again.draw_key != ""  # nobody can draw again


def test_attempts_have_own_summaries(tmp_path: Path) -> None:
    flags = ["--store", str(tmp_path), "--run-id", "two", "--attempts", "2", "-j", "2", *ids(*QUICK[:2])]
    assert swe_argo("run", *flags).returncode == 0
    names = {path.name for path in (tmp_path / "runs" / "two" / "report").glob("gold.two*.json")}
    assert names == {"gold.two.json", "gold.two.attempt-2.json"}
    assert summary(str(tmp_path), "two").headline.total == 4


def test_given_predictions_are_graded(tmp_path: Path, gold: str) -> None:
    patch = Path(gold, "runs", "gold", "units", QUICK[0], "1", "patch.diff").read_text()
    rows = [
        {"instance_id": QUICK[0], "model_name_or_path": "org/model", "model_patch": patch},
        {"instance_id": QUICK[1], "model_name_or_path": "org/model", "model_patch": ""},
        {"instance_id": QUICK[2], "model_name_or_path": "org/model", "model_patch": None},
    ]
    predictions = tmp_path / "preds.jsonl"
    predictions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--store", str(tmp_path), "--run-id", "given", "--predictions", str(predictions), *ids(*QUICK)]
    result = swe_argo("run", *flags)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "given: 3 units to do, 1 without a prediction" in result.stdout
    assert "done before" not in result.stdout
    assert "note: 1 of 4 units has no prediction and will not run" in result.stdout
    assert "the score still counts 4 instances" in result.stdout
    show_result = swe_argo("show", "given", "--store", str(tmp_path)).stdout
    assert f"swe-argo show given {QUICK[1]}" in show_result
    assert "no prediction" in show_result
    report = json.loads(official(str(tmp_path), "given", "org__model"))
    assert report["resolved_ids"] == [QUICK[0]]
    assert report["empty_patch_ids"] == sorted(QUICK[1:3])
    assert report["incomplete_ids"] == [QUICK[3]]
    again = swe_argo("run", *flags)
    assert "given: 0 units to do, 3 done before, 1 without a prediction" in again.stdout


@pytest.mark.long
def test_replay_is_graded(tmp_path: Path, gold: str) -> None:
    patch = Path(gold, "runs", "gold", "units", QUICK[0], "1", "patch.diff").read_text()
    trajectory = {
        "info": {"config": {"model": {"model_name": "lab/model"}}, "exit_status": "Submitted", "submission": ""},
        "messages": [
            {"role": "user", "content": "fix it"},
            {
                "role": "assistant",
                "content": "I know the fix.",
                "extra": {"actions": [{"command": f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"}]},
            },
        ],
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": QUICK[0],
    }
    folder = tmp_path / "trajs" / QUICK[0]
    folder.mkdir(parents=True)
    (folder / f"{QUICK[0]}.traj.json").write_text(json.dumps(trajectory))
    flags = ["--store", str(tmp_path), "--run-id", "again", "--trajectories", str(tmp_path / "trajs"), "--allow-host"]
    result = swe_argo("run", *flags, *ids(QUICK[0]))
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path), "again").headline.resolved == 1
    unit = tmp_path / "runs" / "again" / "units" / QUICK[0] / "1"
    solved = json.loads((unit / "solve.json").read_text())
    assert solved["history"]["verified"] is True
    assert solved["history"]["unreachable_after"] == 0
    shutil.rmtree(tmp_path / "trajs")
    bundle = tmp_path / "runs" / "again" / "report" / "leaderboard" / "trajs"
    once_more = ["--store", str(tmp_path), "--run-id", "bundle", "--trajectories", str(bundle), "--allow-host"]
    assert swe_argo("run", *once_more, *ids(QUICK[0])).returncode == 0
    assert summary(str(tmp_path), "bundle").headline.resolved == 1


def test_unapplicable_patch_is_outcome(tmp_path: Path) -> None:
    broken = "diff --git a/nothing.py b/nothing.py\n--- a/nothing.py\n+++ b/nothing.py\n@@ -1 +1 @@\n-no\n+yes\n"
    predictions = tmp_path / "preds.json"
    predictions.write_text(json.dumps({QUICK[0]: {"model_name_or_path": "m", "model_patch": broken}}))
    flags = ["--store", str(tmp_path), "--run-id", "r", "--predictions", str(predictions), *ids(QUICK[0])]
    assert swe_argo("run", *flags).returncode == 0
    unit = tmp_path / "runs" / "r" / "units" / QUICK[0] / "1"
    assert json.loads((unit / "grade.json").read_text())["outcome"] == "patch_does_not_apply"
    assert not (unit / "report.json").exists()
    assert json.loads(official(str(tmp_path), "r", "m"))["error_ids"] == [QUICK[0]]


@pytest.mark.long
def test_bucket_run_equals_folder_run(bucket: str, gold: str) -> None:
    store = f"s3://{bucket}/team"
    result = swe_argo("run", "--store", store, "--run-id", "gold", *ids(*QUICK))
    assert result.returncode == 0, result.stdout + result.stderr
    names = {name for name in open_store(store).keys("runs/gold/") if "/tries/" not in name}
    assert names == {name for name in open_store(gold).keys("runs/gold/") if "/tries/" not in name}
    assert official(store, "gold", "gold") == official(gold, "gold", "gold")
