"""Specs with a model at a server of the tests."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.run_spec import LlmSpec, RunSpec
from swe_argo.steps.models.client import Client, open_model
from swe_argo.steps.models.reply import Message

ISSUE: list[Message] = [{"role": "user", "content": "There is a bug."}]
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]


def spec(url: str | None, *, model: str = "openai/m", agent: dict[str, Any] | None = None, **llm: Any) -> RunSpec:
    """A spec for a model at this address."""
    return RunSpec(
        run_id="r",
        agent=AgentSpec.model_validate({"name": "r2egym", "model": model, **(agent or {})}),
        llm=LlmSpec(base_url=url, **llm),
    )


def client(url: str, **chosen_spec: Any) -> Client:
    """The model at this address, which waits 10 ms where it would wait a second."""
    return open_model(spec(url, **chosen_spec), first_wait_s=0.01)
