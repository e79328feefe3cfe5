"""The size of a shard's Workflow object, in bytes of JSON: Argo holds up to 1 MiB before it compresses it.

Shapes, fields and their order of size are those of objects that a real controller wrote (``seen.json``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.paths import DATA, ROOT, needs_data
from tests.workflows.pipeline.rendered import SHARD, Manifests, Object, size

SEEN = json.loads(Path(__file__).with_name("seen.json").read_text("utf-8"))
"""The nodes of one unit, as a real controller wrote them."""
LONGEST = "marshmallow-code__marshmallow-1359"
"""The instance of the longest name in SWE-bench and its relatives (Verified, Lite, Multilingual, Multimodal)."""
MESSAGE = "main: Error (exit code 75): "
"""Argo's prefix of a step's message."""
MIB = 1 << 20
TIME = "2026-11-22T03:04:12Z"
NODE = "ip-10-0-123-123.us-east-1.compute.internal"


@dataclass(frozen=True)
class Shard:
    """Everything that makes an object large: ``tries`` of every step, a failed one's message, and long names."""

    instance: str
    units: int = 50
    tries: int = 3
    message: str = ""
    name: str = "swe-argo-nightly-1732240800-s00017"
    run: str = "swe-argo-nightly-1732240800"
    prefix: str = "teams/agents/evaluations/"

    @property
    def node_id(self) -> str:
        return f"{self.name}-4294967295"  # it ends in a hash of 32 bits

    def node(self, name: str, display: str, kind: str, template: str, **more: Any) -> Object:
        return {
            "displayName": display,
            "finishedAt": TIME,
            "id": self.node_id,
            "name": name,
            "phase": "Succeeded",
            "progress": "1/1",
            "resourcesDuration": {"cpu": 1000, "memory": 100000},
            "startedAt": TIME,
            "templateName": template,
            "templateScope": "local/",
            "type": kind,
            **more,
        }


def unit_nodes(argo: Manifests, shard: Shard, number: int) -> list[Object]:
    """Return the nodes of one unit: itself, and for each of its steps a Retry node and one for each try."""
    item = {"attempt": "1", "begins": "solve", "id": shard.instance}
    name = f"{shard.name}.units({number}:{','.join(f'{key}:{value}' for key, value in item.items())})"
    inputs = [{"name": parameter["name"], "value": item[parameter["name"]]}
              for parameter in argo.template("unit")["inputs"]["parameters"]]  # fmt: skip
    links = {"boundaryID": shard.name, "children": [shard.node_id], "outboundNodes": [shard.node_id]}
    unit = shard.node(name, shard.instance[:58], "DAG", "unit", **links, inputs={"parameters": inputs})
    return [unit, *(node for step in ("solve", "grade") for node in step_nodes(argo, shard, step, name, item))]


def step_nodes(argo: Manifests, shard: Shard, step: str, unit: str, item: dict[str, str]) -> list[Object]:
    template, name, pod = argo.template(step), f"{unit}.{step}", f"{shard.name}-{step}-4294967295"

    def fill(value: Any) -> Any:
        text = json.dumps(value)
        for key, replacement in {**item, "run-id": shard.run}.items():
            text = text.replace(f"{{{{inputs.parameters.{key}}}}}", replacement)
            text = text.replace(f"{{{{workflow.parameters.{key}}}}}", replacement)
        return json.loads(text.replace("@prefix@", shard.prefix).replace("{{pod.name}}", pod))

    inputs = fill(template["inputs"])
    for parameter in inputs["parameters"]:
        parameter["value"] = item[parameter["name"]]
    artifacts = fill(template["outputs"]["artifacts"])
    tries = [artifact for artifact in artifacts if artifact["name"] == "try"]
    log = {"name": "main-logs", "s3": {"key": f"{shard.prefix}logs/{pod}/main.log"}}
    word = [parameter | {"value": "patch_does_not_apply"} for parameter in template["outputs"]["parameters"]]
    stored = [*(artifact for artifact in artifacts if artifact not in tries), log]
    good = {"outputs": {"artifacts": stored, "exitCode": "0", "parameters": word}}
    failed = {"outputs": {"artifacts": [*tries, log], "exitCode": "75", "parameters": word}, "message": shard.message}
    common = {"boundaryID": shard.node_id, "inputs": inputs}
    children = {"children": [shard.node_id] * shard.tries, "message": "retryStrategy.expression evaluated to false"}
    nodes = [shard.node(name, step, "Retry", step, **common, **good, **children)]
    for number in range(shard.tries):
        end = good if number == shard.tries - 1 else failed
        ran = {"hostNodeName": NODE, "nodeFlag": {"retried": True}, "taskResultSynced": True}
        nodes.append(shard.node(f"{name}({number})", f"{step}({number})", "Pod", step, **common, **ran, **end))
    return nodes


def shard_object(argo: Manifests, shard: Shard) -> Object:
    """Return the whole Workflow of a shard. The templates are in it twice: as they were, and each as it was used."""
    units = json.dumps([{"id": shard.instance, "attempt": 1, "begins": "solve"}] * shard.units, separators=(",", ":"))
    listed = {"outputs": {"parameters": [{"name": "units", "value": units, "valueFrom": {"path": "/out/units.json"}}]}}
    ids = [shard.node_id] * shard.units
    nodes = [
        shard.node(shard.name, shard.name, "DAG", "shard", outboundNodes=ids),
        shard.node(f"{shard.name}.units", "units", "TaskGroup", "unit", children=ids),
        *[shard.node(f"{shard.name}.list", "list", "Pod", "list", **listed)] * 3,
        *(node for number in range(shard.units) for node in unit_nodes(argo, shard, number)),
    ]
    spec = argo.spec(SHARD)
    holding = [{"holders": [shard.name] * 10, "semaphore": "x" * 80}] * 2
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"annotations": {"x": "x" * 2000}},
        "spec": {"arguments": {"parameters": [{"name": "spec", "value": "x" * 1000}]}, "workflowTemplateRef": {}},
        "status": {
            "nodes": {f"{shard.name}-{number:010d}": node for number, node in enumerate(nodes)},
            "storedTemplates": {f"namespaced/{SHARD}/{part['name']}": part for part in spec["templates"]},
            "storedWorkflowTemplateSpec": spec,
            "conditions": [{"status": "False", "type": "PodRunning"}] * 2,
            "synchronization": {"semaphore": {"holding": holding}},
        },
    }


@pytest.fixture(scope="module")
def longest_reason(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Characters of the longest reason that a step gives: it becomes part of its node's message."""
    folder = tmp_path_factory.mktemp("reason")
    place = "/".join([str(folder), *["a" * 200] * 8])
    variables = {**os.environ, "SWE_ARGO_REASON": str(folder / "reason")}
    command = [sys.executable, "-m", "swe_argo.steps.grade", "--in", place, "--out", str(folder / "out")]
    result = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, check=False)
    assert result.returncode == 64
    return len((folder / "reason").read_text("utf-8"))


def shape(node: Object) -> tuple[int, ...]:
    """Return how many files and parameters it carries."""
    sides = [node.get(side, {}) for side in ("inputs", "outputs")]
    return tuple(len(side.get(kind, [])) for side in sides for kind in ("artifacts", "parameters"))


def test_simulated_nodes_have_real_size(argo: Manifests) -> None:
    shard = Shard("mini__sleep-00002", tries=1, name="run-kplzc-s00000", run="lone-more", prefix="")
    real = {(item["type"], item["templateName"]): item for item in SEEN}
    simulated = {(item["type"], item["templateName"]): item for item in unit_nodes(argo, shard, 0)}
    assert real.keys() == simulated.keys()
    compared = 0
    for kind, node in real.items():
        # The inputs and outputs of a template may change; the fields and the names are Argo's.
        assert node.keys() - {"children"} <= simulated[kind].keys(), kind
        if shape(node) == shape(simulated[kind]):
            compared += 1
            assert size(node) <= size(simulated[kind]) < size(node) * 1.1, kind
    assert compared


def test_retried_shard_fits_uncompressed(argo: Manifests, longest_reason: int) -> None:
    (units,) = (arg.partition("=")[2] for arg in argo.arguments("plan") if arg.startswith("--shard-size="))
    shard = Shard(LONGEST, units=int(units), message="m" * (longest_reason + len(MESSAGE)))
    assert size(shard_object(argo, shard)) <= MIB
    assert size(shard_object(argo, replace(shard, units=2 * shard.units))) > MIB


@needs_data
def test_longest_name_is_long_enough() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = sorted((DATA / "swebench").glob("*.parquet"))
    assert files
    for file in files:
        ids = parquet.read_table(file, columns=["instance_id"]).column(0).to_pylist()
        assert max(map(len, ids)) <= len(LONGEST), file.name
