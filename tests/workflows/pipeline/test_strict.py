"""Every field is one that Argo knows: Hera drops others in silence, and so do Argo's clients."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hera.workflows import models as m
from pydantic import BaseModel

from swe_argo.workflows.templates.render import ARGUMENTS, render
from tests.charts.chart import CHART
from tests.paths import ROOT
from tests.workflows.pipeline.rendered import FOLDER, NIGHTLY, Manifests, committed, holds
from tests.workflows.pipeline.strict import mistakes, needs_schemas

KINDS: dict[str, type[BaseModel]] = {
    "Workflow": m.Workflow,
    "WorkflowTemplate": m.WorkflowTemplate,
    "CronWorkflow": m.CronWorkflow,
}
NEWER = re.compile(r"/spec/templates/\d+/(pendingTimeout|annotations)")
"""Fields of Argo 4.1 that Hera 7.1 does not know."""


@needs_schemas
def test_manifests_match_full_crds(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for manifest in (*argo.objects.values(), *argo.children()):
            yield from mistakes(manifest)

    holds(
        argo,
        faults,
        lambda m: m.template("unit").update(colour="red"),
        lambda m: m.template("solve").update(pendingTimeOut="1m"),
        lambda m: m.template("solve")["container"].update(resource={}),
        lambda m: m.template("shard").update(parallelism="ten"),
        lambda m: m.spec(NIGHTLY).update(timeZone="UTC"),
        lambda m: m.template("child")["resource"].update(
            manifest=m.template("child")["resource"]["manifest"].replace("workflowTemplateRef", "templateRef")
        ),
    )


def test_manifests_match_hera(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for manifest in (*argo.objects.values(), *argo.children()):
            kind = manifest["kind"]
            known_fields = (
                KINDS[kind].model_validate(manifest).model_dump(mode="json", by_alias=True, exclude_unset=True)
            )
            yield from (f"{kind}{place}" for place in _lost(manifest, known_fields) if not NEWER.fullmatch(place))

    holds(
        argo,
        faults,
        lambda m: m.template("unit").update(colour="red"),
        lambda m: m.template("solve").update(pendingTimeOut="1m"),
        lambda m: m.template("solve")["container"].update(imagePullPolice="Always"),
        lambda m: m.spec(NIGHTLY).update(timeZone="UTC"),
    )


def _lost(source: Any, parsed: Any, where: str = "") -> Iterator[str]:
    """Where a model dropped a field that it does not know."""
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


def test_render_check_names_file(tmp_path: Path) -> None:
    """In a copy of what it reads, so that nobody's files change."""
    package = tmp_path / "swe_argo"
    for name in ("workflows", "steps"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "workflows/python/swe_argo/__init__.py", package / "__init__.py")
    command = [sys.executable, "-P", "-m", "swe_argo.workflows.templates.render"]

    def run(*flags: str) -> tuple[int, str]:
        place = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONUTF8": "1"}
        result = subprocess.run(
            [*command, *flags], capture_output=True, text=True, check=False, cwd=tmp_path, env=place
        )
        return result.returncode, result.stdout + result.stderr

    assert run()[0] == 0
    files = {path.name: path.read_text("utf-8") for path in (package / "templates" / "argo").iterdir()}
    files[ARGUMENTS] = (package / "templates" / "arguments.yaml").read_text("utf-8")
    assert files == render()
    assert run("--check") == (0, "")
    changed = package / "templates" / "argo" / "swe-argo-shard.yaml"
    changed.write_text(changed.read_text("utf-8").replace("parallelism: 10", "parallelism: 11"), "utf-8")
    code, output = run("--check")
    assert code == 1
    assert output == f"differs: {changed}\n"
