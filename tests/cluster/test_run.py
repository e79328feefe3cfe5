"""``swe-argo run`` with pods as sandboxes, as the chart's account: the verdicts of ``local``, and nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.disturbances import recordings
from tests.cluster.installed_chart import InstalledChart, figures, leftovers, verdicts
from tests.workflows import test_confirmation as confirmation
from tests.workflows.command import HONEST, QUICK, ids, official, summary, swe_argo

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize(("agent", "resolved"), [("gold", 12), ("idle", 0)])
def test_mini_has_equal_verdicts_in_pods(agent: str, resolved: int, tmp_path: Path, installed: InstalledChart) -> None:
    stores = {backend: str(tmp_path / backend) for backend in ("kubernetes", "local")}
    for backend, store in stores.items():
        words = ["run", "--store", store, "--run-id", "r", "--backend", backend, "--agent", agent, "-j", "4"]
        result = swe_argo(*words, env=installed.environment)
        assert result.returncode == 0, result.stdout + result.stderr
        assert summary(store, "r").headline.resolved == resolved, result.stdout
    pods, folders = stores["kubernetes"], stores["local"]
    assert verdicts(pods, "r") == verdicts(folders, "r")
    assert official(pods, "r", agent) == official(folders, "r", agent)
    assert figures(pods, "r") == figures(folders, "r")
    assert not list(Path(pods).glob("runs/r/units/*/*/tries/*"))
    assert leftovers(installed) == []

    machine = json.loads(Path(pods, "runs", "r", "units", QUICK[0], "1", "grade.json").read_text())["machine"]
    assert (machine["backend"], machine["isolation"]) == ("kubernetes", "container")
    assert machine["image_digest"].startswith("sha256:")
    assert machine["network"] is True


def test_recorded_actions_replay_in_pods(tmp_path: Path, installed: InstalledChart) -> None:
    acts = recordings(tmp_path / "trajectories", QUICK[:2], "timeout 3 bash -c '</dev/tcp/10.96.0.1/443' || echo shut")
    words = ["--store", str(tmp_path), "--run-id", "r", "--backend", "kubernetes", "--trajectories", acts]
    result = swe_argo("run", *words, *ids(*QUICK[:2]), env=installed.environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(str(tmp_path), "r").headline.resolved == 2
    unit = tmp_path / "runs" / "r" / "units" / QUICK[0] / "1"
    assert json.loads((unit / "grade.json").read_text())["confirmation"]["outcome"] in HONEST
    solved = json.loads((unit / "solve.json").read_text())
    assert solved["history"]["verified"] is True
    assert solved["machine"]["network"] is False
    steps = json.loads((unit / "trajectory.json").read_text())["steps"]
    assert "shut" in json.dumps(steps[1]["observation"])
    assert leftovers(installed) == []


def test_forged_verdict_is_suspect(tmp_path: Path, installed: InstalledChart) -> None:
    name = "mini__slugkit-1"
    patches = {name: confirmation.ATTACKS[name]}
    grade = confirmation.run(tmp_path, patches, "--backend", "kubernetes", *ids(name), env=installed.environment)[name]
    assert (grade.resolved, grade.integrity.verdict) == (True, "suspect")
    assert leftovers(installed) == []
