"""A Workflow object as Argo 4.1 writes it once all of it has run: what the API server has to hold of a shard and a run.

Shapes, fields and their order of size are those of objects that a real controller wrote (``seen.json``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.workflows.pipeline.rendered import EVALUATE, SHARD, Manifests, Object

TIME = "2026-11-22T03:04:12Z"
NUMBER = "4294967295"
"""Node ids end in a hash of 32 bits."""
TASK_RESULT = {"annotations": {}, "conditions": [{"status": "False", "type": "PodRunning"}] * 2}


@dataclass(frozen=True)
class Shard:
    """What makes an object large: ``tries`` of every step, what a failed one says, and the lengths of all names."""

    instance: str
    units: int = 50
    tries: int = 3
    message: str = ""
    name: str = "swe-argo-nightly-1732240800-s00017"
    run: str = "swe-argo-nightly-1732240800"
    prefix: str = "teams/agents/evaluations/"


def size(thing: object) -> int:
    """Bytes as Argo counts them: JSON without spaces."""
    return len(json.dumps(thing, separators=(",", ":"), ensure_ascii=False).encode())


def nodes_of_unit(argo: Manifests, shard: Shard, number: int) -> list[Object]:
    """The nodes of one unit: itself, and for each of its steps one that tries and one for each try."""
    item = {"attempt": "1", "begins": "solve", "id": shard.instance}
    name = f"{shard.name}.units({number}:{','.join(f'{key}:{value}' for key, value in item.items())})"
    input_names = {parameter["name"] for parameter in argo.template("unit")["inputs"]["parameters"]}
    unit = _node(shard, name, shard.instance[:58], "DAG", "unit") | {
        "boundaryID": shard.name,
        "children": [_id(shard.name)],
        "outboundNodes": [_id(shard.name)],
        "inputs": {"parameters": [{"name": key, "value": value} for key, value in item.items() if key in input_names]},
    }
    nodes = [unit]
    for step in ("solve", "grade"):
        nodes += _step_nodes(argo, shard, step, f"{name}.{step}", item)
    return nodes


def _step_nodes(argo: Manifests, shard: Shard, step: str, name: str, item: dict[str, str]) -> list[Object]:
    template = argo.template(step)

    def fill(value: Any) -> Any:
        text = json.dumps(value)
        for key, replacement in {**item, "run-id": shard.run, "prefix": shard.prefix}.items():
            text = text.replace(f"{{{{inputs.parameters.{key}}}}}", replacement)
            text = text.replace(f"{{{{workflow.parameters.{key}}}}}", replacement)
        return json.loads(text.replace("{{pod.name}}", _pod(shard.name, step)))

    inputs = fill(template["inputs"])
    for piece in inputs["parameters"]:
        piece["value"] = item[piece["name"]]
    log = {"name": "main-logs", "s3": {"key": f"{shard.prefix}logs/{_pod(shard.name, step)}/main.log"}}
    artifacts = fill(template["outputs"]["artifacts"])
    tries = [piece for piece in artifacts if piece["name"] == "try"]
    word = [
        {"name": piece["name"], "value": "patch_does_not_apply", "valueFrom": piece["valueFrom"]}
        for piece in template["outputs"]["parameters"]
    ]
    outputs = {
        "artifacts": [*(piece for piece in artifacts if piece not in tries), log],
        "exitCode": "0",
        "parameters": word,
    }
    failed = {"artifacts": [*tries, log], "exitCode": "75", "parameters": word}
    nodes = []
    for number in range(shard.tries):
        ended = outputs if number == shard.tries - 1 and not shard.message.endswith("!") else failed
        pod = _node(shard, f"{name}({number})", f"{step}({number})", "Pod", step) | {
            "boundaryID": _id(shard.name),
            "hostNodeName": "ip-10-0-123-123.us-east-1.compute.internal",
            "inputs": inputs,
            "nodeFlag": {"retried": True},
            "outputs": ended,
            "taskResultSynced": True,
        }
        if ended is failed:
            pod["message"] = shard.message
        nodes.append(pod)
    try_node = _node(shard, name, step, "Retry", step) | {
        "boundaryID": _id(shard.name),
        "children": [_id(shard.name)] * shard.tries,
        "inputs": inputs,
        "outputs": outputs,
        "message": "retryStrategy.expression evaluated to false",
    }
    return [try_node, *nodes]


def shard_object(argo: Manifests, shard: Shard) -> Object:
    """The whole Workflow of a shard."""
    nodes = [node for number in range(shard.units) for node in nodes_of_unit(argo, shard, number)]
    units = json.dumps(
        [{"id": shard.instance, "attempt": 1, "begins": "solve"} for _ in range(shard.units)],
        separators=(",", ":"),
    )
    listed = {"parameters": [{"name": "units", "value": units, "valueFrom": {"path": "/out/units.json"}}]}
    group = _node(shard, f"{shard.name}.units", "units", "TaskGroup", "unit") | {
        "children": [_id(shard.name)] * shard.units
    }
    whole = _node(shard, shard.name, shard.name, "DAG", "shard") | {"outboundNodes": [_id(shard.name)] * shard.units}
    lists = [_node(shard, f"{shard.name}.list({part})", "list", "Pod", "list") | {"outputs": listed} for part in "001"]
    return _object(argo.objects[SHARD], shard.name, [whole, group, *lists, *nodes])


def run_object(argo: Manifests, shards: int, shard: Shard) -> Object:
    """Return the Workflow object of a run with these shards, each of whose pods was retried as often as allowed."""
    name = shard.run
    nodes = []
    for number in range(shards):
        item = f"{name}.shards({number}:{number:05d})"
        common = {"inputs": {"parameters": [{"name": "number", "value": f"{number:05d}"}]}, "boundaryID": name}
        log = {"name": "main-logs", "s3": {"key": f"{shard.prefix}logs/{_pod(name, 'child')}/main.log"}}
        ended = {"outputs": {"artifacts": [log], "exitCode": "0"}}
        nodes.append(
            _node(shard, item, f"shard-{number:05d}", "Retry", "child")
            | common | ended | {"children": [_id(name)] * shard.tries}
        )  # fmt: skip
        for again in range(shard.tries):
            pod = {"hostNodeName": "ip-10-0-123-123.us-east-1.compute.internal", "nodeFlag": {"retried": True}}
            lost = {"message": "pod deleted"} if again < shard.tries - 1 else {"taskResultSynced": True}
            label = f"shards({number}:{number:05d})({again})"
            nodes.append(_node(shard, f"{item}({again})", label, "Pod", "child") | common | ended | pod | lost)
    small = [
        _node(shard, f"{name}.{step}({step})", step, "Pod", step) for step in ("plan", "report", "compare", "end") * 3
    ]
    group = _node(shard, f"{name}.shards", "shards", "TaskGroup", "child") | {"children": [_id(name)] * shards}
    return _object(argo.objects[EVALUATE], name, [group, *small, *nodes])


def _object(template: Object, name: str, nodes: list[Object]) -> Object:
    """The templates are in it twice: as they were, and each by its own as it was used."""
    spec = template["spec"]
    stored = {f"namespaced/{template['metadata']['name']}/{part['name']}": part for part in spec["templates"]}
    manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"annotations": {"x": "x" * 2000}},
    }
    return manifest | {
        "spec": {"arguments": {"parameters": [{"name": "spec", "value": "x" * 1000}]}, "workflowTemplateRef": {}},
        "status": {
            "nodes": {f"{name}-{number:010d}": node for number, node in enumerate(nodes)},
            "storedTemplates": stored,
            "storedWorkflowTemplateSpec": spec,
            "conditions": TASK_RESULT["conditions"],
            "synchronization": {"semaphore": {"holding": [{"holders": [name] * 10, "semaphore": "x" * 80}] * 2}},
        },
    }


def _node(shard: Shard, name: str, display: str, kind: str, template: str) -> Object:
    return {
        "displayName": display,
        "finishedAt": TIME,
        "id": _id(shard.name),
        "name": name,
        "phase": "Succeeded",
        "progress": "1/1",
        "resourcesDuration": {"cpu": 1000, "memory": 100000},
        "startedAt": TIME,
        "templateName": template,
        "templateScope": "local/",
        "type": kind,
    }


def _id(name: str) -> str:
    return f"{name}-{NUMBER}"


def _pod(name: str, step: str) -> str:
    return f"{name}-{step}-{NUMBER}"
