"""The pipeline's YAML as tests read it: the committed files, and what the chart makes of them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.charts.chart import Rendered, render
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
    """The objects by name, and the chart's others where they come from there."""

    objects: dict[str, Object]
    chart: Rendered | None = None

    def setting(self, name: str) -> str:
        """What stands for a setting of the namespace: its placeholder, or the chart's value."""
        data = self.chart.one("ConfigMap", "swe-argo-settings")["data"] if self.chart else {}
        return str(data.get(name, f"@{name}@"))

    def spec(self, name: str) -> Object:
        return dict_of(self.objects[name]["spec"])

    def workflows(self) -> Iterator[tuple[str, Object]]:
        """Name and spec of the WorkflowTemplates."""
        yield from ((name, self.spec(name)) for name in TEMPLATES)

    def templates(self) -> Iterator[tuple[str, Object]]:
        """Every template of them, under a name that says whose it is."""
        for name, spec in self.workflows():
            yield from ((f"{name}/{template['name']}", template) for template in spec["templates"])

    def template(self, name: str) -> Object:
        """What several have under one name is the same in all of them."""
        template, *duplicates = (candidate for _, candidate in self.templates() if candidate["name"] == name)
        assert all(candidate == template for candidate in duplicates), name
        return template

    def pods(self) -> Iterator[tuple[str, Object]]:
        """The templates that become pods."""
        yield from ((where, item) for where, item in self.templates() if any(kind in item for kind in LEAVES))

    def containers(self) -> Iterator[tuple[str, Object]]:
        """Those of them that run a program of ours."""
        yield from ((where, template) for where, template in self.pods() if "container" in template)

    def tasks(self) -> Iterator[tuple[str, Object, Object]]:
        """Every task, with the DAG that it is in."""
        for where, item in self.templates():
            yield from ((f"{where}/{task['name']}", item, task) for task in item.get("dag", {}).get("tasks", []))

    def task(self, template: str, name: str) -> Object:
        (match,) = (candidate for candidate in self.template(template)["dag"]["tasks"] if candidate["name"] == name)
        return dict_of(match)

    def child(self, template: str = "child") -> Object:
        """The Workflow that a template makes, by default a shard, with zeros where its parent fills something in."""
        return dict_of(yaml.safe_load(filled(self.template(template)["resource"]["manifest"])))

    def children(self) -> list[Object]:
        """The same of all templates that make one."""
        names = [item["name"] for _, item in self.pods() if item.get("resource", {}).get("action") == "apply"]
        return [self.child(name) for name in names]


def dict_of(value: Any) -> Object:
    """The same object, known to be one."""
    assert isinstance(value, dict)
    return value


def filled(text: str) -> str:
    """A text with a zero for everything in double braces, as text where that is quoted by itself."""
    return re.sub(r"\{\{.*?\}\}", "0", re.sub(r"\{\{=toJson\(.*?\)\}\}", '"0"', text))


def braces(value: Any) -> Iterator[str]:
    """What is in double braces, anywhere in it."""
    for text in texts(value):
        yield from (expression.strip() for expression in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL))


def texts(value: Any) -> Iterator[str]:
    """Every string in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def tables(value: Any, where: str = "") -> Iterator[tuple[str, Object]]:
    """Every object in it, with its place."""
    if isinstance(value, dict):
        yield where, value
        for name, item in value.items():
            yield from tables(item, f"{where}/{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            label = item.get("name", number) if isinstance(item, dict) else number
            yield from tables(item, f"{where}/{label}")


def seconds(text: str) -> int:
    """A duration as Argo writes it: 30m, 10m, 15s, 24h."""
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


@cache
def committed() -> Manifests:
    """The files of templates/argo."""
    objects = [yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yaml"))]
    return Manifests({manifest["metadata"]["name"]: manifest for manifest in objects})


@cache
def of_chart() -> Manifests:
    """What the chart makes with a bucket and a nightly run. Skips where there is no helm."""
    image = ("image.repository=registry.example/swe-argo", "image.tag=1.2.3")
    chart = render("aws.s3.bucket=results", "aws.s3.existingSecret=s3-keys", *image, "nightly.enabled=true")
    ours = [manifest for manifest in chart.objects if manifest["apiVersion"].startswith("argoproj.io/")]
    return Manifests({manifest["metadata"]["name"]: manifest for manifest in ours}, chart)


Faults = Callable[[Manifests], Iterator[str]]
Change = Callable[[Manifests], object]


def holds(argo: Manifests, faults: Faults, *changes: Change) -> None:
    """The property holds of ``made``, and of no copy with one of these changes: else the test could not fail."""
    failures = list(faults(argo))
    assert not failures, "\n".join(failures)
    for number, change in enumerate(changes, 1):
        changed = Manifests(copy.deepcopy(argo.objects), argo.chart)
        change(changed)
        assert changed.objects != argo.objects, f"change {number} changes nothing"
        assert list(faults(changed)), f"change {number} breaks this property, and it does not see that"
