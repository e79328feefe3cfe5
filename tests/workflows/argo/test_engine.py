"""Both ways to Workflows do the same."""

from __future__ import annotations

import pytest

from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.contracts.workflow_marks import runs_of
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.steps.settings import settings
from swe_argo.workflows.argo import kube_engine
from swe_argo.workflows.argo.engine import UNSEEN, Engine
from swe_argo.workflows.argo.engines import open_engine as engine_of
from tests.workflows.argo.world import World

# Hera's own call of pydantic.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")


def test_workflows_are_found_by_run_oldest_first(either: Engine, world: World) -> None:
    world.workflow("r-2", "r", "Failed")
    world.workflow("r-3", "r", "Running")
    world.workflow("other", "other", "Running")
    found = either.glance(runs_of("r"))
    assert [(each.name, each.phase, each.has_ended) for each in found] == [
        ("r-2", "Failed", True),
        ("r-3", "Running", False),
    ]


def test_a_list_of_workflows_never_brings_their_bodies(engine: Engine, world: World) -> None:
    world.workflow("r-2", "r", "Running")
    engine.glance(runs_of("r"))
    assert [body for _, _, body in world.asked] == [None]


def test_a_workflow_comes_whole_and_one_that_is_gone_is_none(either: Engine, world: World) -> None:
    world.workflow("r-2", "r", "Running", status={"nodes": {"a": {"id": "a"}}})
    body = either.workflow("r-2")
    assert body is not None
    assert body["status"]["nodes"] == {"a": {"id": "a"}}
    assert either.workflow("r-9") is None


def test_one_that_was_made_though_the_reply_was_lost_is_taken_for_made(either: Engine, world: World) -> None:
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "r-1", "labels": {"swe-argo/run": "r"}},
        "spec": {"workflowTemplateRef": {"name": "swe-argo-evaluate"}},
    }
    either.create(workflow)
    either.create(workflow)
    assert world.objects["workflows", "r-1"]["spec"] == workflow["spec"]


@pytest.mark.parametrize(("waits", "how"), [(False, "Stop"), (True, "Terminate")])
def test_what_runs_is_stopped_and_what_waits_is_terminated(either: Engine, world: World, waits: bool, how: str) -> None:
    world.workflow("r-2", "r", "Running")
    either.stop("r-2", waits=waits)
    assert world.objects["workflows", "r-2"]["spec"]["shutdown"] == how
    either.stop("gone", waits=waits)


def test_changing_the_nightly_run_leaves_the_rest_of_it(either: Engine, world: World) -> None:
    world.put("cronworkflows", "swe-argo-nightly", spec={"suspend": True, "newIn42": 1, "schedules": ["@daily"]})
    either.change_cron("swe-argo-nightly", {"suspend": False})
    found = world.objects["cronworkflows", "swe-argo-nightly"]["spec"]
    assert found == {"suspend": False, "newIn42": 1, "schedules": ["@daily"]}


def test_argo_server_shows_nothing_but_argos_own(either: Engine, world: World) -> None:
    world.chart()
    seen = either.see("configmaps", "swe-argo-settings")
    assert (seen is UNSEEN) == ("argo-server" in either.where)
    assert either.see("workflowtemplates", "swe-argo-evaluate")
    assert either.see("workflowtemplates", "none") is None


@pytest.mark.parametrize(
    ("crds", "said"),
    [("none", "install Argo Workflows 4.1"), ("old", "older than 4.1"), ("minimal", None), ("full", None)],
)
def test_the_crds_tell_which_argo_it_is(engine: Engine, world: World, crds: str, said: str | None) -> None:
    world.crds = crds
    if said:
        with pytest.raises(ConfigError, match=said):
            engine.fitness()
        return
    notes = engine.fitness()
    assert bool(notes) == (crds == "minimal")
    assert world.made() == []


@pytest.mark.parametrize(
    ("version", "refused", "noted"),
    [("v4.1.2", False, False), ("v4.0.10", True, False), ("v3.7.1+x", True, False), ("v5.0.0", False, False),
     ("latest", False, True)],
)  # fmt: skip
def test_argo_server_tells_its_version(
    version: str, refused: bool, noted: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGO_SERVER", world.url)  # with its scheme, as in a browser
    monkeypatch.setenv("ARGO_NAMESPACE", "evals")
    settings.cache_clear()
    world.version = version
    server = engine_of(KubernetesSpec())
    if refused:
        with pytest.raises(ConfigError, match="upgrade"):
            server.fitness()
    else:
        assert bool(server.fitness()) == noted
    server.close()


def test_a_right_that_is_missing_is_named_with_the_role_that_has_it(engine: Engine, world: World) -> None:
    world.forbidden = ("workflows",)
    with pytest.raises(
        ConfigError, match=r"evals:one may not list workflows in namespace evals of context here.*swe-argo-submitter"
    ):
        engine.glance("")
    world.forbidden = ("secrets",)
    assert engine.see("secrets", "keys") is UNSEEN


def test_an_api_that_is_away_for_a_moment_is_asked_again(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.away = 1
    assert engine.glance("") == []
    monkeypatch.setattr(kube_engine, "PATIENCE", RetryPolicy(total_s=0.1))
    world.away = 1000
    with pytest.raises(InfraError, match="does not answer"):
        engine.glance("")
    world.away = 0


def test_argo_server_wants_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGO_SERVER", "localhost:1")
    settings.cache_clear()
    with pytest.raises(ConfigError, match="ARGO_NAMESPACE"):
        engine_of(KubernetesSpec())
    settings.cache_clear()
