"""Files that a forge and other tools read: the citation and the workflow."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from tests.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())


def commands(job: str) -> str:
    return "\n".join(step.get("run", "") for step in WORKFLOW["jobs"][job]["steps"])


def test_citation_matches_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["title"], citation["version"]) == (PROJECT["name"], PROJECT["version"])
    assert citation["license"] == PROJECT["license"]


def test_workflow_runs_checks() -> None:
    assert ".ci/run" in commands("check")


def test_workflow_uses_make_targets() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = re.findall(r"^make ([a-z -]+?)(?: [A-Z_]+=|$)", "\n".join(map(commands, WORKFLOW["jobs"])), re.MULTILINE)
    assert {"test-quick", "wheel", "build", "push"} == {word for words in called for word in words.split()} <= targets


def test_workflow_tests_all_pythons() -> None:
    tested = {"3.11", *WORKFLOW["jobs"]["quick"]["strategy"]["matrix"]["python"]}
    names = [name.removeprefix("Programming Language :: Python :: ") for name in PROJECT["classifiers"]]
    assert tested == {name for name in names if re.fullmatch(r"3\.\d+", name)}


def test_workflow_builds_only_on_tags() -> None:
    jobs = WORKFLOW["jobs"]
    assert {name for name in jobs if "refs/tags/v" in jobs[name].get("if", "")} == {"package", "images"}
