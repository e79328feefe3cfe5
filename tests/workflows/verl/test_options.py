from __future__ import annotations

import re

import pytest

from steps.errors import ConfigError
from tests.paths import ROOT
from workflows.verl.options import LoopOptions, read_options


def test_the_docs_have_every_key() -> None:
    [_, table] = (ROOT / "docs" / "verl.md").read_text().split("Keys of `agent_loops.yaml`")
    named = re.findall(r"^\| `(\w+)` \|", table.partition("\n## ")[0], re.MULTILINE)
    assert named == list(LoopOptions.model_fields)


def test_a_key_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"penalty: .*there are store, run, output_chars"):
        read_options({"penalty": 1})
