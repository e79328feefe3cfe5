"""Refusals in the words of the endpoints that there are, and what each means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.models.errors import ErrorMeaning, Refusal, error_meaning, parameter_of


def _error(message: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}


WORDINGS = [json.loads(line) for line in Path(__file__).with_name("wordings.jsonl").read_text("utf-8").splitlines()]
"""``{"means", "who", "status", "body"}``: what endpoints answer, and what each means."""


@pytest.mark.parametrize(
    "wording", WORDINGS, ids=lambda wording: f"{wording['means']}-{wording['who']}-{wording['status']}"
)
def test_error_meaning_fits_each_wording(wording: dict[str, Any]) -> None:
    status, body, means = wording["status"], wording["body"], ErrorMeaning(wording["means"])
    assert error_meaning(Refusal.of(status, body)) is means
    inner = body.get("error") if isinstance(body, dict) else None
    if isinstance(inner, dict):  # the library hands on what is in "error"
        assert error_meaning(Refusal.of(status, inner)) is means


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (_error("Unsupported parameter", "temperature"), "temperature"),
        (_error("'max_tokens' is not supported. Use 'max_completion_tokens' instead."), "max_tokens"),
        (_error("Use max_completion_tokens"), None),
        ({"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}, "seed"),
    ],
)
def test_parameter_of_returns_sent_name(body: Any, name: str | None) -> None:
    assert parameter_of(Refusal.of(400, body), ("max_tokens", "temperature", "seed")) == name


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "detail", "metadata", "raw"]), inner)
    ),
    max_leaves=8,
)


@given(st.integers(400, 599), _JSON)
def test_error_meaning_accepts_any_body(status: int, body: Any) -> None:
    assert error_meaning(Refusal.of(status, body)) in ErrorMeaning
