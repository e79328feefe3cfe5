"""What there is to run, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.families import FAMILIES
from swe_argo.steps.datasets import names
from swe_argo.steps.datasets.known import list_known
from tests.workflows.command import swe_argo


def test_each_known_dataset_is_one_that_a_run_takes() -> None:
    known = list(list_known())
    assert {one.name for one in known if one.source == "bundled"} == set(names.BUNDLED)
    assert {one.family for one in known} <= set(FAMILIES)
    for one in known:
        assert one.source == "bundled" or names.hub_id(one.name) == one.source


def test_they_are_listed_and_nothing_is_asked_of_a_network(tmp_path: Path) -> None:
    done = swe_argo("datasets", env={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["mini", "swebench", "test", "12", "bundled"] in lines
    assert ["verified", "swebench", "test", "500", "SWE-bench/SWE-bench_Verified"] in lines


@pytest.mark.parametrize("words", [["-d", "mini", "--k", "2"], ["RUN.toml"]])
def test_the_instances_are_those_that_a_run_would_have(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "RUN.toml").write_text("dataset = 'mini'\n[select]\nk = 2\n")
    done = swe_argo("instances", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[f"mini__gridprint-{n}", "mini/gridprint"] for n in (1, 2)]
    assert last == "2 instances of mini"
    rows = swe_argo("instances", *words, "--json", cwd=tmp_path).stdout.splitlines()
    found = [Instance.model_validate(json.loads(row)) for row in rows]
    assert [one.instance_id for one in found] == ["mini__gridprint-1", "mini__gridprint-2"]
    assert not {"patch", "test_patch"} & set(json.loads(rows[0]))


def test_a_wrong_name_is_one_line() -> None:
    done = swe_argo("instances", "-d", "verifed")
    assert done.returncode == 64
    assert "did you mean verified?" in done.stderr
