"""A task as an agent gets it: a real client of a model server, a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr

from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.run_spec import LlmSpec, RunSpec
from swe_argo.steps.contracts.trajectory import AgentInfo, Result
from swe_argo.steps.models.client import Client
from swe_argo.steps.models.endpoint import Endpoint
from swe_argo.steps.models.rate_limits import open_limiter
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.model_server import ModelServer, Script, model_server

ISSUE = "a is 2 where it should be 3"


def instance(**fields: Any) -> Instance:
    defaults = {
        "instance_id": "a__b-1",
        "repo": "a/b",
        "version": "1",
        "base_commit": "0" * 40,
        "image": "test/image",
        "problem_statement": ISSUE,
    }
    return Instance(**(defaults | fields))


@contextmanager
def open_task(
    script: Script,
    box: Sandbox,
    agent: str,
    *,
    fn_calling: bool = True,
    instruction: str = "",
    about: Instance | None = None,
    llm: dict[str, Any] | None = None,
    **spec: Any,
) -> Iterator[tuple[Task, ModelServer]]:
    """The task, and the server its model is. ``spec`` are fields of AgentSpec, ``llm`` of LlmSpec."""
    chosen_spec = AgentSpec(name=agent, model="openai/tester", **spec)
    with model_server(script) as server:
        llm_spec = LlmSpec(base_url=server.url, **{"num_retries": 0, **(llm or {})})
        where = Endpoint(server.url, "tester", SecretStr("sk-of-the-tests"))
        with Client(RunSpec(agent=chosen_spec, llm=llm_spec), where, open_limiter(llm_spec), 0.01) as model:
            recorder = Recorder(AgentInfo(name=agent, version="1", model_name="tester"), "run", "a__b-1", 1)
            yield Task(about or instance(), chosen_spec, box, recorder, model, instruction, fn_calling), server
    assert not server.errors


def observations(task: Task) -> list[Result]:
    """What came of the calls, in order."""
    return [result for turn in task.recorder.turns if turn.observation for result in turn.observation.results]


def agrees(task: Task, server: ModelServer) -> None:
    """The recorder, its turns, the client and the server have counted the same."""
    usage, counts = task.recorder.usage, server.counts
    assert usage == task.model.usage
    assert (usage.requests, usage.calls) == (counts.requests, counts.calls)
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)
    recorded = [turn.metrics for turn in task.recorder.turns if turn.metrics is not None]
    assert sum(metrics.prompt_tokens or 0 for metrics in recorded) == usage.prompt_tokens
    assert len(recorded) == usage.calls
