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
from tests.workflows.pipeline.rendered import FOLDER, NIGHTLY, Made, committed, holds
from tests.workflows.pipeline.strict import mistakes, needs_schemas

KINDS: dict[str, type[BaseModel]] = {
    "Workflow": m.Workflow,
    "WorkflowTemplate": m.WorkflowTemplate,
    "CronWorkflow": m.CronWorkflow,
}
NEWER = re.compile(r"/spec/templates/\d+/(pendingTimeout|annotations)")
"""Fields of Argo 4.1 that Hera 7.1 does not know."""


@needs_schemas
def test_all_objects_are_what_the_full_crds_say(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for each in (*made.objects.values(), *made.children()):
            yield from mistakes(each)

    holds(
        made,
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


def test_all_objects_are_what_hera_knows_and_nothing_else(made: Made) -> None:
    def faults(made: Made) -> Iterator[str]:
        for each in (*made.objects.values(), *made.children()):
            kind = each["kind"]
            kept = KINDS[kind].model_validate(each).model_dump(mode="json", by_alias=True, exclude_unset=True)
            yield from (f"{kind}{place}" for place in _lost(each, kept) if not NEWER.fullmatch(place))

    holds(
        made,
        faults,
        lambda m: m.template("unit").update(colour="red"),
        lambda m: m.template("solve").update(pendingTimeOut="1m"),
        lambda m: m.template("solve")["container"].update(imagePullPolice="Always"),
        lambda m: m.spec(NIGHTLY).update(timeZone="UTC"),
    )


def _lost(said: Any, kept: Any, where: str = "") -> Iterator[str]:
    """Where a model dropped a field that it does not know."""
    if isinstance(said, dict):
        for name, value in said.items():
            if not isinstance(kept, dict) or name not in kept:
                yield f"{where}/{name}"
            else:
                yield from _lost(value, kept[name], f"{where}/{name}")
    elif isinstance(said, list):
        for number, value in enumerate(said):
            yield from _lost(value, kept[number], f"{where}/{number}")


def test_the_committed_files_are_what_is_rendered() -> None:
    files = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.yaml")}
    files[ARGUMENTS] = (CHART / "arguments.yaml").read_text("utf-8")
    assert files == render(), "python -m swe_argo.workflows.templates.render writes them"
    assert files.keys() == {ARGUMENTS, *(f"{name}.yaml" for name in committed().objects)}


def test_the_check_says_which_file_differs(tmp_path: Path) -> None:
    """In a copy of what it reads, so that nobody's files change."""
    package = tmp_path / "swe_argo"
    for name in ("workflows", "steps"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "workflows/python/swe_argo/__init__.py", package / "__init__.py")
    command = [sys.executable, "-P", "-m", "swe_argo.workflows.templates.render"]

    def run(*flags: str) -> tuple[int, str]:
        place = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONUTF8": "1"}
        done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False, cwd=tmp_path, env=place)
        return done.returncode, done.stdout + done.stderr

    assert run()[0] == 0
    files = {path.name: path.read_text("utf-8") for path in (package / "templates" / "argo").iterdir()}
    files[ARGUMENTS] = (package / "templates" / "arguments.yaml").read_text("utf-8")
    assert files == render()
    assert run("--check") == (0, "")
    changed = package / "templates" / "argo" / "swe-argo-shard.yaml"
    changed.write_text(changed.read_text("utf-8").replace("parallelism: 10", "parallelism: 11"), "utf-8")
    code, said = run("--check")
    assert code == 1
    assert said == f"differs: {changed}\n"
