from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.datasets import predictions
from swe_argo.steps.datasets.openhands import as_graded
from swe_argo.steps.errors import ConfigError
from tests.steps.datasets.sample_rows import PROPERTY, jsonl

IDS = ["a__a-1", "a__a-2", "a__a-3"]
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
SETUP = PATCH.replace("a.py", "sub/setup.py")
FINISH = {"source": "agent", "action": "finish", "args": {}}
SDK_FINISH = {"kind": "ActionEvent", "source": "agent", "tool_name": "finish", "action": {}}


def row(instance_id: str = "a__a-1", patch: Any = PATCH, **more: Any) -> dict[str, Any]:
    names = {"instance_id": instance_id, "test_result": {"git_patch": patch}}
    return names | {"metadata": {"llm_config": {"model": "m/x"}}, "history": [], "error": None} | more


def read(tmp_path: Path, *rows: Any) -> predictions.Predictions:
    return predictions.read(jsonl(tmp_path / "output.jsonl", *rows), IDS, IDS)


def test_openhands_output_is_read(tmp_path: Path) -> None:
    actual = read(tmp_path, row("a__a-1"), row("a__a-2", metadata={"llm": {"model": "m/x"}}))
    assert actual == predictions.Predictions("m/x", {"a__a-1": PATCH, "a__a-2": PATCH}, [])


def test_row_without_patch_is_empty(tmp_path: Path) -> None:
    for result in ({}, {"git_patch": ""}, {"git_patch": None}, None):
        patches = read(tmp_path, row(test_result=result), row("a__a-2")).patches
        assert (patches["a__a-1"] or "", patches["a__a-2"]) == ("", PATCH)
    assert read(tmp_path, row(metadata=None)).model == "OpenHands"


def test_infra_errors_are_skipped(tmp_path: Path) -> None:
    for error in ("AgentRuntimeDisconnectedError", "Budget has been exceeded! Current", "404"):
        actual = read(tmp_path, row("a__a-1", error=error), row("a__a-2", "", error=error), row("a__a-3"))
        assert list(actual.patches) == ["a__a-3"]
        assert actual.notices == [
            "output.jsonl has only infrastructure failures for 2 instances, which count as missing predictions, "
            "not as unresolved: a__a-1, a__a-2"
        ]
        assert read(tmp_path, row("a__a-1", error=error)).patches == {}


AGENT_ERRORS = (
    "RuntimeError: Agent reached maximum iteration in headless mode. Current iteration: 100, max iteration: 100",
    "RuntimeError: Agent reached maximum budget for conversation. Current budget: 3.01, max budget: 3.0",
    "AgentStuckInLoopError: Agent got stuck in a loop",
    "LLMContextWindowExceedError: Conversation history longer than the context window",
)


def test_agent_errors_are_graded(tmp_path: Path) -> None:
    for error in AGENT_ERRORS:
        actual = read(tmp_path, row(error=error), row("a__a-2", "", error=error))
        assert actual.patches == {"a__a-1": PATCH, "a__a-2": ""}


def test_openhands_best_attempt_counts(tmp_path: Path) -> None:
    good, worse = PATCH, PATCH.replace("+2", "+3")
    rows = [
        row("a__a-1", good, attempt=1, history=[FINISH]),
        row("a__a-1", worse, attempt=2),
        row("a__a-1", "", attempt=3, error="404"),
        row("a__a-2", good, attempt=2, history=[SDK_FINISH, {"kind": "ObservationEvent", "source": "environment"}]),
        row("a__a-2", worse, attempt=1, history=[[FINISH, {"observation": "null"}]]),
        row("a__a-3", "", attempt=2, history=[FINISH]),
        row("a__a-3", good, attempt=1),
    ]
    actual = read(tmp_path, *rows)
    assert actual.patches == {"a__a-1": good, "a__a-2": good, "a__a-3": ""}  # no rank tells the two of the third apart
    assert actual.notices[0].startswith("output.jsonl has several attempts at a__a-1, a__a-2, a__a-3; the best")


def test_setup_hunks_are_removed(tmp_path: Path) -> None:
    actual = read(tmp_path, row("a__a-1", "git diff --cached\n0\n" + SETUP + PATCH), row("a__a-2", PATCH))
    assert actual.patches == {"a__a-1": PATCH, "a__a-2": PATCH}
    assert "hunks of pyproject.toml, tox.ini, setup.py" in actual.notices[0]
    assert actual.notices[0].endswith(": a__a-1")


def test_own_export_is_unchanged(tmp_path: Path) -> None:
    own = {"git_patch": SETUP, "swe_argo": {"scaffold": "openhands"}}
    assert read(tmp_path, row(test_result=own)).patches == {"a__a-1": SETUP}


def test_graded_patch_keeps_odd_bytes() -> None:
    odd = PATCH.replace("+2\n", "+caf\udce9\r\n+setup.py\n\\ No newline at end of file\n")
    assert as_graded(odd) == odd
    assert as_graded(SETUP + odd + SETUP) == odd
    assert as_graded(SETUP) == ""
    assert as_graded("no diff") == "no diff"
    for name in ("pyproject.toml", "tox.ini", "setup.py"):
        assert as_graded(PATCH.replace("a.py", name)) == ""
        assert as_graded(PATCH.replace("a.py", f"my_{name}")) != ""


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row(test_result=[])], "output.jsonl, row 1: test_result is not an object"),
        ([row(patch=3)], "output.jsonl, row 1: test_result.git_patch is int, not text or null"),
        ([row() | {"instance_id": None}], "output.jsonl, row 1: instance_id is missing"),
        ([row("b__b-1")], "output.jsonl has predictions for 1 instances that the dataset does not have: b__b-1"),
        (
            [row(), {"instance_id": "a__a-2", "model_name_or_path": "m", "model_patch": ""}],
            "output.jsonl mixes predictions and rows of OpenHands",
        ),
    ],
)
def test_openhands_refuses_in_one_line(tmp_path: Path, rows: list[Any], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, *rows)
    assert caught.value.reason.removeprefix("agent.predictions: ").startswith(reason)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


RESULTS = st.dictionaries(st.just("git_patch"), _JSON) | _JSON
ROWS = st.fixed_dictionaries(
    {"instance_id": st.sampled_from(IDS) | _JSON, "test_result": RESULTS},
    optional=dict.fromkeys(("metadata", "history", "error", "attempt"), _JSON),
)


@PROPERTY
@given(ROWS)
def test_any_row_parses_or_is_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    with contextlib.suppress(ConfigError):
        read(tmp_path, value)
