"""A spec becomes a Workflow, and what cannot work is refused in one line before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.settings import settings
from swe_argo.steps.spec_parsing import checked, of_text
from swe_argo.steps.store import open_store
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.kube_engine import KubernetesEngine
from swe_argo.workflows.argo.submission import submit, workflow
from swe_argo.workflows.cli import validate
from tests.workflows.argo.world import World

pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")


def chosen_spec(**fields: Any) -> RunSpec:
    return checked({"run_id": "r", **fields}, "wish")


def send(engine: Engine, spec: RunSpec, *, dry: bool = False) -> Any:
    return submit(engine, spec, priority=0, compare_with="", dry=dry, say=lambda _: None)


def parameters(made: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in made["spec"]["arguments"]["parameters"]}


def test_the_whole_spec_travels_and_means_the_same_there() -> None:
    spec = chosen_spec(dataset="lite", attempts=3, select={"k": 5, "regex": 'a"\\{'}, sandbox={"memory_mb": 4096})
    said = parameters(workflow(spec, priority=4, compare_with="last"))
    again = checked(of_text(said["spec"], "spec"), "spec")
    kept = {"dataset", "split", "revision", "answers", "attempts", "select", "agent", "grading", "sandbox"}
    assert again.model_dump(include=kept) == spec.model_dump(include=kept)
    shown = {name: said[name] for name in ("run-id", "dataset", "k", "attempts", "agent", "compare-with", "priority")}
    assert shown == {
        "run-id": "r", "dataset": "lite", "k": "5", "attempts": "3", "agent": "gold", "compare-with": "last",
        "priority": "4",
    }  # fmt: skip


def test_tables_of_backends_that_say_nothing_do_not_travel_to_an_image_that_may_not_know_them() -> None:
    text = parameters(workflow(chosen_spec(sandbox={"backend": "kubernetes", "memory_mb": 4096})))["spec"]
    assert not {"local", "docker", "kubernetes"} & json.loads(text)["sandbox"].keys()
    text = parameters(workflow(chosen_spec(sandbox={"kubernetes": {"node_selector": ["role=cpu"]}})))["spec"]
    assert json.loads(text)["sandbox"]["kubernetes"] == {"node_selector": ["role=cpu"]}


def test_what_is_to_be_done_again_and_the_tags_travel() -> None:
    text = parameters(workflow(chosen_spec(redo=["unresolved"], tags=["nightly"])))["spec"]
    assert (json.loads(text)["redo"], json.loads(text)["tags"]) == (["unresolved"], ["nightly"])
    assert "tags" not in json.loads(parameters(workflow(chosen_spec()))["spec"])  # an older image may not know them


def test_where_a_person_is_does_not_travel() -> None:
    spec = chosen_spec(store="s3://x", workers=3, sandbox={"kubernetes": {"namespace": "n", "context": "c"}})
    text = parameters(workflow(spec))["spec"]
    assert not {"store", "workers", "retries", "run_id"} & json.loads(text).keys()
    assert "kubernetes" not in json.loads(text)["sandbox"]


def test_a_spec_is_submitted_by_either_way(either: Engine, world: World, bucket: str) -> None:
    world.chart()
    sent = send(either, chosen_spec())
    made = world.objects["workflows", sent.name]
    assert made["metadata"]["labels"] == {"swe-argo/run": "r", "swe-argo/kind": "evaluate"}
    assert made["spec"]["workflowTemplateRef"] == {"name": "swe-argo-evaluate"}
    assert parameters(made)["backend"] == "kubernetes"
    assert sent.notes == []


def test_a_dry_run_checks_and_makes_nothing(engine: Engine, world: World, bucket: str, tmp_path: Path) -> None:
    world.chart()
    (tmp_path / "ids.txt").write_text("a\n")
    sent = send(engine, chosen_spec(select={"ids_file": str(tmp_path / "ids.txt")}), dry=True)
    assert world.made() == []
    assert open_store(f"s3://{bucket}").keys("team/") == []
    assert "s3://runs-here/team/inputs/" in parameters(sent.workflow)["spec"]


def test_files_of_this_machine_are_brought_once_and_named_by_what_they_hold(
    engine: Engine, world: World, bucket: str, tmp_path: Path
) -> None:
    world.chart()
    for folder in ("one", "two"):
        (tmp_path / folder / "acts").mkdir(parents=True)
        (tmp_path / folder / "acts" / "a.json").write_text("{}")
        (tmp_path / folder / "acts" / ".git").write_text("no")
        (tmp_path / folder / "acts" / ".env").write_text("no")
        (tmp_path / folder / "acts" / "task" / "environment").mkdir(parents=True)
        (tmp_path / folder / "acts" / "task" / "environment" / ".condarc").write_text("yes")
        (tmp_path / folder / "ids.txt").write_text("a\n")
    specs = [
        chosen_spec(
            dataset="mini",
            agent={"trajectories": str(tmp_path / folder / "acts")},
            select={"ids_file": str(tmp_path / folder / "ids.txt")},
        )
        for folder in ("one", "two")
    ]
    first = json.loads(parameters(send(engine, specs[0]).workflow)["spec"])
    held = open_store(f"s3://{bucket}/team")
    names = held.keys("inputs/")
    assert sorted(name.split("/", 2)[2] for name in names) == [
        *("acts/a.json", "acts/task/environment/.condarc", "ids.txt")
    ]
    assert held.get(first["select"]["ids_file"].removeprefix(f"{held.url}/")) == b"a\n"
    world.objects = {where: each for where, each in world.objects.items() if where[0] != "workflows"}
    second = json.loads(parameters(send(engine, specs[1]).workflow)["spec"])
    assert second == first
    assert held.keys("inputs/") == names


def test_names_of_datasets_and_addresses_stay(engine: Engine, world: World, bucket: str) -> None:
    world.chart()
    spec = chosen_spec(
        dataset="verified", answers="SWE-bench/SWE-bench_Verified@abc", agent={"predictions": "run:earlier"}
    )
    said = json.loads(parameters(send(engine, spec).workflow)["spec"])
    assert (said["dataset"], said["answers"]) == ("verified", "SWE-bench/SWE-bench_Verified@abc")
    assert said["agent"]["predictions"] == "run:earlier"


def test_a_time_that_only_its_project_has_is_lowered_to_the_deadlines(
    engine: Engine, world: World, bucket: str
) -> None:
    world.chart()
    for run, wished, held in (("own", {}, 3600), ("wished", {"timeout_s": 60}, 60)):
        agent = {"name": "openhands", "model": "openai/m", **wished}
        spec = chosen_spec(run_id=run, agent=agent, llm={"base_url": "http://model"})
        assert json.loads(parameters(send(engine, spec).workflow)["spec"])["agent"]["timeout_s"] == held


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sandbox": {"backend": "docker"}}, "swe-argo run"),
        ({"agent": {"timeout_s": 3601}}, "agent.timeout_s: 3601 is more than this pipeline allows: at most 3600"),
        ({"grading": {"timeout_s": 1801}}, "grading.timeout_s: 1801 is more"),
        ({"store": "s3://other"}, "runs of this namespace go to s3://runs-here/team, not to s3://other"),
        ({"agent": {"predictions": "none.jsonl"}}, "agent.predictions: there is no file none.jsonl"),
        ({"select": {"ids_file": "none.txt"}}, "select.ids_file: there is no file none.txt"),
        ({"dataset": "rows.jsonl"}, "dataset: there is no file rows.jsonl"),
    ],
)
def test_a_spec_that_cannot_work_there_is_refused(
    fields: dict[str, Any], said: str, engine: Engine, world: World, bucket: str
) -> None:
    world.chart()
    with pytest.raises(ConfigError) as refused:
        send(engine, chosen_spec(**fields))
    assert said in refused.value.reason
    assert world.made() == []


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        (("configmaps", "swe-argo-settings"), "helm upgrade --install swe-argo"),
        (("configmaps", "swe-argo-limits"), "swe-argo-limits is missing"),
        (("configmaps", "swe-argo-artifacts"), "swe-argo-artifacts is missing"),
        (("workflowtemplates", "swe-argo-evaluate"), "swe-argo-evaluate is missing"),
        (("workflowtemplates", "swe-argo-shard"), "swe-argo-shard is missing"),
        (("secrets", "keys"), "there is no Secret keys"),
    ],
)
def test_a_part_that_is_missing_there_is_named(
    lacking: tuple[str, str], said: str, engine: Engine, world: World, bucket: str
) -> None:
    world.chart()
    del world.objects[lacking]
    with pytest.raises(ConfigError, match=said):
        send(engine, chosen_spec())
    world.forbidden = (lacking[0],)  # what may not be seen is no ground to refuse
    if lacking[0] not in ("workflowtemplates",):
        send(engine, chosen_spec())


def test_no_argo_is_said_before_no_chart(engine: Engine, world: World) -> None:
    world.crds = "none"
    with pytest.raises(ConfigError, match="no Argo Workflows in context here"):
        send(engine, chosen_spec())


def test_no_namespace_is_said_before_no_chart(world: World) -> None:
    cluster = world.cluster()
    engine = KubernetesEngine(Cluster(cluster.configuration, "nowhere", cluster.name))
    with pytest.raises(ConfigError, match="there is no namespace 'nowhere' in context here"):
        send(engine, chosen_spec())
    engine.close()


def test_minimal_crds_are_said_to_tell_nothing(engine: Engine, world: World, bucket: str) -> None:
    world.chart()
    world.crds = "minimal"
    assert "4.1 or newer" in send(engine, chosen_spec()).notes[0]


def test_a_run_that_goes_on_is_not_begun_again_and_one_that_ended_is(either: Engine, world: World, bucket: str) -> None:
    world.chart()
    world.workflow("r-1", "r", "Failed")
    sent = send(either, chosen_spec())
    del world.objects["workflows", sent.name]
    world.workflow("r-2", "r", "Running")
    with pytest.raises(ConfigError, match="'r' is running already, as workflow r-2: swe-argo watch r"):
        send(either, chosen_spec())


def test_a_bucket_that_is_not_there_is_refused(engine: Engine, world: World, bucket: str) -> None:
    world.chart(bucket="none-here")
    with pytest.raises(ConfigError, match="bucket 'none-here' does not exist"):
        send(engine, chosen_spec())


def test_a_bucket_out_of_reach_is_a_note_unless_files_are_to_go_there(
    engine: Engine, world: World, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.chart()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    settings.cache_clear()
    assert (
        "the bucket s3://runs-here/team was not looked at, from here it does not answer: "
        in (send(engine, chosen_spec()).notes[0])
    )
    (tmp_path / "ids.txt").write_text("a\n")
    with pytest.raises(InfraError, match="the store s3://runs-here/team failed"):
        send(engine, chosen_spec(run_id="s", select={"ids_file": str(tmp_path / "ids.txt")}))
    assert len(world.made()) == 1


@pytest.mark.parametrize(
    ("hard", "said"),
    [({"pods": "2"}, "pods 2 of 3"), ({"requests.memory": "100Mi"}, "requests.memory 100Mi of"), ({"pods": "3"}, "")],
)
def test_a_quota_that_could_never_hold_a_unit_is_refused(
    hard: dict[str, str], said: str, engine: Engine, world: World, bucket: str
) -> None:
    world.chart()
    world.put("resourcequotas", "q", spec={"hard": hard})
    if said:
        with pytest.raises(ConfigError, match=f"can never hold one unit: quota 'q' allows {said}"):
            send(engine, chosen_spec())
    else:
        assert "holds 1 units at a time, the limit is 50" in send(engine, chosen_spec()).notes[0]


def test_a_quota_of_sandboxes_alone_counts_no_steps(engine: Engine, world: World, bucket: str) -> None:
    world.chart(**{"step-pod": '{"priorityClassName": "steps"}'})
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["sandboxes"]}
    world.put("resourcequotas", "q", spec={"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}})
    assert send(engine, chosen_spec()).notes == []


def test_a_validation_is_two_runs_of_the_pipeline() -> None:
    spec = validate.read_spec("verified", {"run_id": "v", "attempts": None, "select_k": 5}, [])
    said = {name: parameters(workflow(run)) for name, run in validate.runs_of(spec, 4).items()}
    shown = ("run-id", "dataset", "k", "agent", "attempts", "model")
    assert {name: [each[field] for field in shown] for name, each in said.items()} == {
        "gold": ["v.gold", "verified", "5", "gold", "4", ""],
        "idle": ["v.idle", "verified", "5", "idle", "1", ""],
    }
