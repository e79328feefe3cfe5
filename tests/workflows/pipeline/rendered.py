"""The pipeline's committed YAML, as tests read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.paths import ROOT

FOLDER = ROOT / "templates" / "argo"
EVALUATE, SHARD, NIGHTLY = "swe-argo-evaluate", "swe-argo-shard", "swe-argo-nightly"
TRAIN, ROUND = "swe-argo-train", "swe-argo-round"
TEMPLATES = (EVALUATE, SHARD, TRAIN, ROUND)
LEAVES = ("container", "resource", "script", "containerSet", "data", "http", "plugin")
KINDS = (*LEAVES, "dag", "steps", "suspend")

Object = dict[str, Any]


@dataclass(frozen=True)
class Manifests:
    """The objects by name."""

    objects: dict[str, Object]

    def spec(self, name: str) -> Object:
        return dict(self.objects[name]["spec"])

    def workflows(self) -> Iterator[tuple[str, Object]]:
        """Yield name and spec of the WorkflowTemplates."""
        yield from ((name, self.spec(name)) for name in TEMPLATES)

    def templates(self) -> Iterator[tuple[str, Object]]:
        """Yield every template of them, under a name that says whose it is."""
        for name, spec in self.workflows():
            yield from ((f"{name}/{template['name']}", template) for template in spec["templates"])

    def template(self, name: str) -> Object:
        """Return the template of a name, which is the same in all WorkflowTemplates that have it."""
        template, *duplicates = (candidate for _, candidate in self.templates() if candidate["name"] == name)
        assert all(candidate == template for candidate in duplicates), name
        return template

    def arguments(self, name: str) -> list[str]:
        """Return the command line arguments of a template's container."""
        return list(self.template(name)["container"]["args"])

    def pods(self) -> Iterator[tuple[str, Object]]:
        """Yield the templates that become pods."""
        yield from ((where, item) for where, item in self.templates() if any(kind in item for kind in LEAVES))

    def containers(self) -> Iterator[tuple[str, Object]]:
        """Yield those of them that run a program of ours."""
        yield from ((where, template) for where, template in self.pods() if "container" in template)

    def tasks(self) -> Iterator[tuple[str, Object, Object]]:
        """Yield every task, with the template of its DAG."""
        for where, item in self.templates():
            yield from ((f"{where}/{task['name']}", item, task) for task in item.get("dag", {}).get("tasks", []))

    def task(self, template: str, name: str) -> Object:
        (match,) = (candidate for candidate in self.template(template)["dag"]["tasks"] if candidate["name"] == name)
        return dict(match)

    def child(self, template: str = "child") -> Object:
        """Return the Workflow that a template makes, by default a shard, with zeros for values of its parent."""
        text = re.sub(r"\{\{=toJson\(.*?\)\}\}", '"0"', self.template(template)["resource"]["manifest"])
        return dict(yaml.safe_load(re.sub(r"\{\{.*?\}\}", "0", text)))

    def children(self) -> list[Object]:
        """Return the same of all templates that make one."""
        names = [item["name"] for _, item in self.pods() if item.get("resource", {}).get("action") == "apply"]
        return [self.child(name) for name in names]


def parameters(holder: Object) -> dict[str, str]:
    """Return name -> value of the parameters in ``arguments``."""
    return {item["name"]: item.get("value", "") for item in holder.get("arguments", {}).get("parameters", [])}


def braces(value: Any) -> Iterator[str]:
    """Yield everything in double braces, anywhere in a value."""
    for text in texts(value):
        yield from (expression.strip() for expression in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL))


def texts(value: Any) -> Iterator[str]:
    """Yield every string in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def tables(value: Any, where: str = "") -> Iterator[tuple[str, Object]]:
    """Yield every object in a value, with its place."""
    if isinstance(value, dict):
        yield where, value
        for name, item in value.items():
            yield from tables(item, f"{where}/{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            label = item.get("name", number) if isinstance(item, dict) else number
            yield from tables(item, f"{where}/{label}")


def seconds(text: str) -> int:
    """Return the seconds of a duration as Argo writes it: 30m, 15s, 24h."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def size(thing: object) -> int:
    """Return the bytes of an object as Argo counts them: JSON without spaces."""
    return len(json.dumps(thing, separators=(",", ":"), ensure_ascii=False).encode())


@cache
def committed() -> Manifests:
    """Return the files of templates/argo."""
    objects = [yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yaml"))]
    return Manifests({manifest["metadata"]["name"]: manifest for manifest in objects})
