"""The commands of a person, on a real Argo: submit, watch, stop, resume, fetch, nightly."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.argo.pipeline import Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.cluster.installed_chart import PATIENCE_S, settles
from tests.workflows.command import QUICK, begin, ids, plan, summary, swe_argo

pytestmark = pytest.mark.usefixtures("use_kubeconfig")


def here(pipeline: Pipeline) -> list[str]:
    return ["--namespace", pipeline.namespace]


@pytest.mark.core
def test_run_is_submitted_and_fetched(pipeline: Pipeline, tmp_path: Path) -> None:
    chosen = tmp_path / "ids.txt"
    chosen.write_text("\n".join(QUICK[:3]))
    submission = swe_argo("submit", *here(pipeline), "--run-id", "cli", "--ids-file", str(chosen))
    assert submission.returncode == 0, submission.stdout + submission.stderr
    assert "swe-argo watch cli" in submission.stdout
    again = swe_argo("submit", *here(pipeline), "--run-id", "cli", "--ids-file", str(chosen))
    assert again.returncode == 64
    assert "is running already" in again.stderr
    watched = swe_argo("watch", "cli", *here(pipeline))
    assert watched.returncode == 0, watched.stdout + watched.stderr
    assert "resolved 3/3, infra 0" in watched.stdout.splitlines()[-1], watched.stdout
    assert plan(pipeline.store, "cli").units[0].begins == "grade"
    ruler = local(tmp_path, "cli", *ids(*QUICK[:3]))
    assert_same_outcome(RunOutcome.of(pipeline.store, "cli"), ruler)
    fetched = swe_argo("fetch", "cli", str(tmp_path / "here"), *here(pipeline))
    assert fetched.returncode == 0, fetched.stderr
    assert summary(str(tmp_path / "here"), "cli") == summary(pipeline.store, "cli")
    report = swe_argo("show", "cli", "--store", str(tmp_path / "here"))
    assert "resolved 3/3" in report.stdout


def test_run_is_stopped_and_resumed(pipeline: Pipeline) -> None:
    submission = swe_argo("submit", *here(pipeline), "--run-id", "stopped", *ids(*QUICK), "--attempts", "3")
    assert submission.returncode == 0, submission.stderr
    watcher = begin("watch", "stopped", *here(pipeline))
    assert watcher.stdout is not None
    pipeline.running("swe-argo/run=stopped,swe-argo/step=grade")
    watcher.send_signal(signal.SIGINT)
    output, _ = watcher.communicate(timeout=PATIENCE_S)
    assert watcher.returncode == 130, output
    assert "is still running; stop it with: swe-argo stop stopped" in output
    stopped = swe_argo("stop", "stopped", *here(pipeline))
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert "swe-argo resume stopped" in stopped.stdout
    assert pipeline.sandboxes() == []
    before = summary(pipeline.store, "stopped").headline
    assert before.graded < before.total
    refused = swe_argo("stop", "stopped", *here(pipeline))
    assert (refused.returncode, "it is not running" in refused.stderr) == (64, True)
    resumed = swe_argo("resume", "stopped", *here(pipeline), "--watch")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert summary(pipeline.store, "stopped").headline.resolved == len(QUICK)


def test_nightly_run_is_listed(pipeline: Pipeline) -> None:
    if not pipeline.kubectl("get", "cronworkflows", "-o", "name"):
        refused = swe_argo("nightly", "on", *here(pipeline))
        assert (refused.returncode, "nightly.enabled=true" in refused.stderr) == (64, True)
        recorded = Path(__file__).parents[2] / "templates" / "argo" / "swe-argo-nightly.yaml"
        pipeline.kubectl("apply", "-f", str(recorded))
    change = '{"spec":{"arguments":{"parameters":[{"name":"k","value":"1"}]}}}'
    where = ["cronworkflow", "swe-argo-nightly", "--type=merge"]
    spec = pipeline.get_json("cronworkflow", "swe-argo-nightly")["spec"]["workflowSpec"]
    assert spec["workflowTemplateRef"]["name"] == "swe-argo-evaluate"
    pipeline.kubectl("patch", *where, "-p", change.replace('{"spec":', '{"spec":{"workflowSpec":') + "}")
    on = swe_argo("nightly", "on", "--schedule", "* * * * *", "--timezone", "Europe/Berlin", *here(pipeline))
    assert on.returncode == 0, on.stderr
    selector = "workflows.argoproj.io/cron-workflow=swe-argo-nightly"

    def came() -> bool:
        return bool(pipeline.kubectl("get", "workflows", "-l", selector, "-o", "name"))

    assert settles(came), "no minute began it"
    off = swe_argo("nightly", "off", *here(pipeline))
    assert off.returncode == 0, off.stderr
    name = pipeline.kubectl("get", "workflows", "-l", selector, "-o", "jsonpath={.items[0].metadata.name}")
    pipeline.succeeds(name)
    listed = swe_argo("nightly", "list", *here(pipeline))
    assert listed.returncode == 0, listed.stderr
    assert name in listed.stdout
    assert "1/1" in listed.stdout
