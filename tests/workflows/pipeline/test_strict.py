"""Every field is one that Argo knows: Hera drops others in silence, and so do Argo's clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hera.workflows import models as m
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from swe_argo.workflows.templates.render import ARGUMENTS, render
from tests.charts.chart import CHART
from tests.paths import DATA, ROOT
from tests.workflows.pipeline.rendered import FOLDER, Manifests, committed

SCHEMAS = DATA / "argo"
KINDS: dict[str, tuple[str, type[BaseModel]]] = {
    "Workflow": ("workflows", m.Workflow),
    "WorkflowTemplate": ("workflowtemplates", m.WorkflowTemplate),
    "CronWorkflow": ("cronworkflows", m.CronWorkflow),
}
"""Kind -> the name of its schema, and Hera's model."""
NEWER = re.compile(r"/spec/templates/\d+/(pendingTimeout|annotations)")
"""Fields of Argo 4.1 that Hera 7.1 does not know."""


@pytest.mark.skipif(not SCHEMAS.is_dir(), reason="needs Argo's CRD schemas in ../shared/data/argo")
def test_manifests_match_full_crds(argo: Manifests) -> None:
    for manifest in (*argo.objects.values(), *argo.children()):
        errors = _validator(manifest["kind"]).iter_errors(manifest)
        assert [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in errors] == []


@cache
def _validator(kind: str) -> Draft202012Validator:
    strict = _strict(json.loads((SCHEMAS / f"{KINDS[kind][0]}.schema.json").read_text("utf-8")))
    strict["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(strict)


def _strict(schema: Any) -> Any:
    """Return the schema with an error for every field that it does not know, unlike Argo's clients."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(item) for name, item in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        strict.pop("anyOf", None)
        strict["type"] = ["integer", "string"]
    free = schema.get("x-kubernetes-preserve-unknown-fields") is True or "additionalProperties" in schema
    # (a table of properties may itself have one that is called so)
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not free:
        strict["additionalProperties"] = False
    return strict


def test_manifests_match_hera(argo: Manifests) -> None:
    for manifest in (*argo.objects.values(), *argo.children()):
        model = KINDS[manifest["kind"]][1].model_validate(manifest)
        known_fields = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert [place for place in _lost(manifest, known_fields) if not NEWER.fullmatch(place)] == []


def _lost(source: Any, parsed: Any, where: str = "") -> Iterator[str]:
    """Yield where a model dropped a field that it does not know."""
    if isinstance(source, dict):
        for name, value in source.items():
            if not isinstance(parsed, dict) or name not in parsed:
                yield f"{where}/{name}"
            else:
                yield from _lost(value, parsed[name], f"{where}/{name}")
    elif isinstance(source, list):
        for number, value in enumerate(source):
            yield from _lost(value, parsed[number], f"{where}/{number}")


def test_committed_manifests_are_current() -> None:
    files = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.yaml")}
    files[ARGUMENTS] = (CHART / "arguments.yaml").read_text("utf-8")
    assert files == render(), "python -m swe_argo.workflows.templates.render writes them"
    assert files.keys() == {ARGUMENTS, *(f"{name}.yaml" for name in committed().objects)}


@pytest.mark.long
def test_render_check_names_file(tmp_path: Path) -> None:
    """In a copy of what it reads, so that nobody's files change."""
    package = tmp_path / "swe_argo"
    for name in ("workflows", "steps"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "workflows/python/swe_argo/__init__.py", package / "__init__.py")

    def run(*flags: str) -> tuple[int, str]:
        place = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONUTF8": "1"}
        command = [sys.executable, "-P", "-m", "swe_argo.workflows.templates.render", *flags]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=place)
        return result.returncode, result.stdout + result.stderr

    assert run()[0] == 0
    files = {path.name: path.read_text("utf-8") for path in (package / "templates" / "argo").iterdir()}
    files[ARGUMENTS] = (package / "templates" / "arguments.yaml").read_text("utf-8")
    assert files == render()
    changed = package / "templates" / "argo" / "swe-argo-shard.yaml"
    changed.write_text(changed.read_text("utf-8").replace("parallelism: 10", "parallelism: 11"), "utf-8")
    assert run("--check") == (1, f"differs: {changed}\n")
