"""Every agent that asks a model, in every format, solves an instance: in a folder and in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import solutions
from tests.model_server import model_server
from tests.workflows.models.run import KEY, assert_resolved, assert_totals, evaluate

NAMES = ("scaffold", "fn_calling", "instance")
WAYS = [
    ("openhands", False, "mini__slotbook-2"),
    ("openhands", True, "mini__plainconf-1"),
    ("r2egym", True, "mini__gridprint-1"),
    ("r2egym", False, "mini__ledgerlet-1"),
    ("sweagent", True, "mini__slugkit-2"),
    ("sweagent", False, "mini__stalecache-1"),
    ("mini-swe-agent", True, "mini__ledgerlet-2"),
    ("mini-swe-agent", False, "mini__slugkit-1"),
    ("oneshot", False, "mini__plainconf-2"),
]
ways = pytest.mark.parametrize(NAMES, WAYS)


@pytest.mark.parametrize(NAMES, [WAYS[0], *(pytest.param(*way, marks=pytest.mark.long) for way in WAYS[1:])])
def test_scaffold_solves(scaffold: str, fn_calling: bool, instance: str, backend: str, tmp_path: Path) -> None:
    words = ["--use-fn-calling", str(fn_calling).lower(), "--backend", backend]
    with model_server(solutions.solving(scaffold, fn_calling=fn_calling), key=KEY) as server:
        result = evaluate(server, tmp_path, scaffold, *words, instances=[instance])
    assert result.returncode == 0, result.stdout + result.stderr
    assert KEY not in result.stdout + result.stderr
    solved = assert_resolved(tmp_path, instance)
    assert solved.extra.usage.calls == len(solutions.answers(instance, scaffold, fn_calling=fn_calling))
    assert_totals(tmp_path, server.counts)
