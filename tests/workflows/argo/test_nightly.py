"""The nightly run is put on and off, and its last nights are told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from swe_argo.workflows.argo import nightly
from swe_argo.workflows.argo.engine import Engine
from tests.steps.reports.synthetic import Synthetic
from tests.workflows.argo.world import World

pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")


def cron(world: World, **status: object) -> None:
    spec = {"suspend": True, "schedules": ["0 2 * * *"], "timezone": "Etc/UTC", "workflowSpec": {}}
    world.put("cronworkflows", "swe-argo-nightly", spec=spec, status=status)


def console() -> Console:
    return Console(file=io.StringIO(), width=300)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_nightly_switches_on_and_off(either: Engine, world: World) -> None:
    cron(world)
    to = console()
    nightly.switch_on(either, ["30 3 * * mon-fri", "@monthly"], "Europe/Berlin", to)
    spec = world.objects["cronworkflows", "swe-argo-nightly"]["spec"]
    assert spec == {
        "suspend": False,
        "schedules": ["30 3 * * mon-fri", "@monthly"],
        "timezone": "Europe/Berlin",
        "workflowSpec": {},
    }
    assert "next " in text_of(to)
    nightly.switch_off(either, console())
    assert world.objects["cronworkflows", "swe-argo-nightly"]["spec"]["suspend"] is True


def test_nightly_reports_stopped_cron(engine: Engine, world: World) -> None:
    cron(world, phase="Stopped")
    to = console()
    nightly.switch_on(engine, [], None, to)
    assert "kubectl delete cronworkflow swe-argo-nightly" in text_of(to)


def test_nightly_names_chart_option(either: Engine) -> None:
    for act in (nightly.show_nightly, nightly.switch_off):
        with pytest.raises(ConfigError, match=r"nightly\.enabled=true"):
            act(either, console())


def test_nightly_refuses_bad_schedule() -> None:
    with pytest.raises(ConfigError):
        nightly.check_schedule(["0 2 * *"], None)
    with pytest.raises(ConfigError):
        nightly.check_schedule([], "Berlin")


def test_nightly_lists_last_runs(engine: Engine, world: World, bucket: str) -> None:
    world.chart()
    cron(world)
    opened = open_store(f"s3://{bucket}/team")
    Synthetic("swe-argo-nightly-1", instances=1, mix={"resolved": 1}, suspects=0, log_lines=1).write(opened)
    write_report(opened, "swe-argo-nightly-1")
    labels = {"workflows.argoproj.io/cron-workflow": "swe-argo-nightly"}
    world.workflow("swe-argo-nightly-2", "swe-argo-nightly-2", "Running", labels=labels)
    to = console()
    nightly.show_nightly(engine, to)
    text = text_of(to)
    assert text.index("swe-argo-nightly-2") < text.index("swe-argo-nightly-1")
    assert "1/1" in text
    assert "Running" in text
