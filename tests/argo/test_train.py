"""GRPO through the real controller: the checkpoints of ``swe-argo train``, whatever happens to its pods meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile, run_of
from swe_argo.steps.store import open_store
from swe_argo.steps.training.checkpoints import CheckpointLog
from tests.argo.conftest import PORTS, free_port
from tests.argo.disturbances import comes, delete, kill_controller
from tests.argo.image import REPOSITORY, TAG, TINKER, load_pipeline_image
from tests.argo.pipeline import S3, Pipeline, installed
from tests.broken_s3 import Way, breakable
from tests.tinker_server.proxy import CALLER_KEY, running_proxy
from tests.tinker_server.server import KEY
from tests.workflows.command import summary, swe_argo
from tests.workflows.training.train import POOL, Bench, bench

IMAGE_TAG = f"{TAG}-training"
AGENT = "one_word:OneWord"
NAME = "one"


@dataclass
class Gym:
    """The place of trainings. ``tinker``: the pods' connection to Tinker's server, which a test may break."""

    pipeline: Pipeline
    bench: Bench
    tinker: Way
    folder: Path
    proxies: ExitStack

    def follow(self, training: str) -> str:
        """Start a proxy that follows this training's weights, to the end of all tests; its address for the pods."""
        port = free_port()
        pointer = ["--store", self.pipeline.store, "--pointer", key(WeightsFile, training), "--refresh", "1"]
        flags = ["--host", S3[0], "--port", str(port), *pointer]
        self.proxies.enter_context(running_proxy(self.bench.server, self.bench.model, self.folder, *flags))
        return f"http://{S3[0]}:{port}/v1"

    def spec(self, name: str, **more: Any) -> dict[str, Any]:
        """Two attempts at each of two instances a step."""
        run = {"agent": {"name": AGENT}, "select": {"instance_ids": POOL}, "grading": {"confirm": "never"}}
        fields = {"name": name, "base_model": "test/model", "steps": 3, "groups": 2, "group_size": 2, "run": run}
        return {**fields, **more}

    def submit(self, name: str, spec: dict[str, Any], **parameters: object) -> str:
        """Make a Workflow of ``swe-argo-train``; its name."""
        values = {
            "training": name,
            "spec": json.dumps(spec),
            **{field: str(value) for field, value in parameters.items()},
        }
        workflow = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"generateName": f"{name}-"},
            "spec": {
                "workflowTemplateRef": {"name": "swe-argo-train"},
                "arguments": {"parameters": [{"name": field, "value": value} for field, value in values.items()]},
            },
        }
        created = json.loads(self.pipeline.kubectl("create", "-o", "json", "-f", "-", input=workflow))
        return str(created["metadata"]["name"])

    def learned(self, name: str) -> list[tuple[str, str]]:
        """For each step the digest of its samples, and what its state is: the server's hash of all that it learnt."""
        states = self.bench.server.trainer.states
        steps = CheckpointLog(open_store(self.pipeline.store), name).read()
        return [(step.samples_sha256, states[step.weights.state_path or ""]) for step in steps]

    def workflows_of(self, name: str, kind: str) -> list[str]:
        """The Workflows of this kind that belong to a training, by name."""
        items = self.pipeline.get_json("workflows", "-l", f"swe-argo/training={name},swe-argo/kind={kind}")["items"]
        return sorted(item["metadata"]["name"] for item in items)

    def describe(self, name: str) -> str:
        """Return the end of every Workflow of a training, for the message of a failed test."""
        kinds = [workflow for kind in ("train", "round", "evaluate") for workflow in self.workflows_of(name, kind)]
        return "\n".join(self.pipeline.describe(workflow) for workflow in kinds)


@contextmanager
def gym(pipeline: Pipeline, s3_way: Way, folder: Path) -> Iterator[Gym]:
    """A second installation of the chart, whose image has an agent of its own and Tinker's SDK."""
    with ExitStack() as stack:
        here = stack.enter_context(bench(folder))
        address = urlsplit(here.server.url)
        assert address.hostname
        assert address.port
        way = stack.enter_context(breakable(S3[0], free_port(), (address.hostname, address.port)))
        files = {here.agent.name: here.agent}
        load_pipeline_image(pipeline.cluster, tag=IMAGE_TAG, own=files, more=TINKER)
        words = [
            *("--set-string", f"image.tag={IMAGE_TAG}", "--set-string", f"training.image.tag={IMAGE_TAG}"),
            *("--set", f"training.image.repository={REPOSITORY}", "--set", f"network.allow[0].cidr={S3[0]}/32"),
            *("--set", f"network.allow[0].ports={{{PORTS[0]}-{PORTS[-1]}}}", "--set", f"plugins={{{AGENT}}}"),
        ]
        chart_pipeline = stack.enter_context(installed(pipeline.cluster, s3_way.url, *words))
        keys = {"LLM_API_KEY": CALLER_KEY, "TINKER_API_KEY": KEY, "TINKER_BASE_URL": way.url, "TINKER_TELEMETRY": "0"}
        literals = [f"--from-literal={name}={value}" for name, value in keys.items()]
        chart_pipeline.kubectl("create", "secret", "generic", "tinker-credentials", *literals)
        yield Gym(chart_pipeline, here, way, folder, stack)


def ruler(folder: Path, spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the result of the same training by ``swe-argo train``, undisturbed, with its own server."""
    with bench(folder) as here:
        file = folder / "spec.json"
        local_fields = {"store": str(folder / "store"), "workers": 2, "sandbox": {"allow_host": True}}
        file.write_text(json.dumps({**spec, "tokenizer": str(here.model), "run": {**spec["run"], **local_fields}}))
        python_path = {"PYTHONPATH": f"{here.agent.parent}"}
        result = swe_argo("train", "--config", str(file), env=here.env | python_path, cwd=folder, timeout_s=600)
        assert result.returncode == 0, result.stdout + result.stderr
        return here.learned("store")


pytest.importorskip("tinker", reason="the extra tinker is not installed")


@pytest.fixture(scope="module")
def place(pipeline: Pipeline, s3_way: Way, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    with gym(pipeline, s3_way, tmp_path_factory.mktemp("gym")) as training_gym:
        yield training_gym


@pytest.mark.timeout(1800)
def test_training_survives_killed_pods(place: Gym, tmp_path: Path) -> None:
    """The controller dies while rollouts are collected, the pod that learns while it learns; then one more step."""
    spec = place.spec(NAME, proxy_url=place.follow(NAME), steps=2, held_out={"every": 2, "share": 0.25})
    name = place.submit(NAME, spec)
    comes(lambda: place.pipeline.pods(f"swe-argo/run={run_of(NAME, 1)},swe-argo/step=solve"))
    kill_controller(place.pipeline.cluster, 5)
    with learning(place) as pod:
        delete(place.pipeline, pod)
    assert place.pipeline.ended(name) == "Succeeded", place.describe(NAME)
    assert [workflow_name[-6:] for workflow_name in place.workflows_of(NAME, "round")] == ["000000", "000001", "000002"]
    again = place.submit(NAME, spec, steps=3)
    assert place.pipeline.ended(again) == "Succeeded", place.describe(NAME)
    # The last step once more, for what it may have left, and the one that is new.
    assert [
        workflow_name[-6:] for workflow_name in place.workflows_of(NAME, "round") if workflow_name.startswith(again)
    ] == ["000002", "000003"]
    assert place.learned(NAME) == ruler(tmp_path, {**spec, "steps": 3, "proxy_url": None})
    for run in (f"{NAME}.000000.held-out", f"{NAME}.000002.held-out"):
        assert summary(place.pipeline.store, run).complete
    assert place.pipeline.sandboxes() == []


@contextmanager
def learning(place: Gym) -> Iterator[str]:
    """The pod that learns the first step, in the middle of it: what it asked for is not answered meanwhile."""
    is_asked, go_on = threading.Event(), threading.Event()

    def hold(route: str) -> None:
        if route.endswith("optim_step") and not go_on.is_set():
            is_asked.set()
            go_on.wait(120)

    place.bench.server.before = hold
    try:
        comes(is_asked.is_set)
        (pod,) = place.pipeline.pods(f"swe-argo/run={run_of(NAME, 1)},swe-argo/step=learn")
        yield str(pod["metadata"]["name"])
    finally:
        go_on.set()
        place.bench.server.before = lambda _: None


def test_failed_step_ends_its_training(place: Gym) -> None:
    """Its run is refused: agents work an hour at most. No step follows."""
    spec = place.spec("lost", proxy_url=place.follow("lost"))
    spec["run"]["agent"]["timeout_s"] = 5000
    name = place.submit("lost", spec)
    assert place.pipeline.ended(name) == "Failed", place.describe("lost")
    assert [workflow_name[-6:] for workflow_name in place.workflows_of("lost", "round")] == ["000000", "000001"]
    assert place.learned("lost") == []


def test_stopped_training_leaves_no_pods(place: Gym) -> None:
    spec = place.spec("halted", proxy_url=place.follow("halted"))
    name = place.submit("halted", spec)
    comes(lambda: place.pipeline.pods(f"swe-argo/run={run_of('halted', 1)},swe-argo/step=solve"))
    place.pipeline.kubectl("patch", "workflow", name, "--type=merge", "--patch", '{"spec": {"shutdown": "Stop"}}')
    assert place.pipeline.ended(name) == "Failed"
    for kind in ("round", "evaluate"):
        for workflow_name in place.workflows_of("halted", kind):
            assert place.pipeline.ended(workflow_name) in ("Succeeded", "Failed"), place.describe("halted")
    assert place.pipeline.sandboxes() == []
    pods = place.pipeline.pods(f"swe-argo/run={run_of('halted', 1)}")
    at_work = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}
    assert not {"Pending", "Running"} & set(at_work.values()), at_work
