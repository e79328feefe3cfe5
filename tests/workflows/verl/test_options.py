from __future__ import annotations

import re

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.workflows.verl.options import LoopOptions, read_options, share_graders
from tests.paths import ROOT


def test_the_docs_have_every_key() -> None:
    [_, table] = (ROOT / "docs" / "verl.md").read_text().split("Keys of `agent_loops.yaml`")
    named = re.findall(r"^\| `(\w+)` \|", table.partition("\n## ")[0], re.MULTILINE)
    assert named == list(LoopOptions.model_fields)


def test_a_key_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"penalty: .*there are output_chars, .*, keep"):
        read_options({"penalty": 1})


@pytest.mark.parametrize(("workers", "nodes", "graders"), [(8, 1, 3), (8, 2, 6), (64, 1, 1), (1, 2, 24)])
def test_the_workers_of_a_machine_share_what_it_grades_at_a_time(
    monkeypatch: pytest.MonkeyPatch, workers: int, nodes: int, graders: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    shared = share_graders(LoopOptions(), "docker", workers=workers, nodes=nodes)
    assert shared == LoopOptions(graders=graders)
    assert share_graders(LoopOptions(graders=5), "docker", workers=workers, nodes=nodes).graders == 5
