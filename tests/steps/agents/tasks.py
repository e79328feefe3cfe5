"""A task as an agent gets it: a real client of a model server, a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.data import Instance
from swe_argo.steps.contracts.run_spec import LlmSpec, RunSpec
from swe_argo.steps.contracts.trajectory import AgentInfo, Metrics, MetricsExtra, Result
from swe_argo.steps.models.client import Client
from swe_argo.steps.models.endpoint import Endpoint
from swe_argo.steps.models.rate_limits import open_limiter
from swe_argo.steps.models.reply import Message, Reply, RequestedCall
from swe_argo.steps.sandbox.protocol import Sandbox
from tests.model_server import Answer, Fault, ModelServer, Script, model_server

ISSUE = "a is 2 where it should be 3"


def instance(**fields: Any) -> Instance:
    names = {"instance_id": "a__b-1", "repo": "a/b", "version": "1", "base_commit": "0" * 40, "image": "test/image"}
    return Instance(**(names | {"problem_statement": ISSUE} | fields))


def recorder(agent: str = "replay", file: Path | None = None) -> Recorder:
    return Recorder(AgentInfo(name=agent, version="1", model_name="tester"), "run", "a__b-1", 1, file)


def in_turn(*answers: Answer | Fault) -> Script:
    """Answer each request in turn: a malformed answer is not counted in the conversation."""
    remaining = list(answers)
    return lambda request: remaining.pop(0) if len(remaining) > 1 else remaining[0]


def open_client(spec: AgentSpec, server: ModelServer, llm: dict[str, Any] | None = None) -> Client:
    """Open a client of the server; ``llm`` are fields of LlmSpec."""
    llm_spec = LlmSpec(base_url=server.url, **{"num_retries": 0, **(llm or {})})
    endpoint = Endpoint(server.url, "tester", SecretStr("sk-of-the-tests"))
    return Client(RunSpec(agent=spec, llm=llm_spec), endpoint, open_limiter(llm_spec), 0.01)


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
    file: Path | None = None,
    temperature: float | None = None,
    **spec: Any,
) -> Iterator[tuple[Task, ModelServer]]:
    """Open a task and the server of its model. ``spec`` are fields of AgentSpec, ``llm`` of LlmSpec."""
    chosen_spec = AgentSpec(name=agent, model="openai/tester", **spec)
    with model_server(script) as server, open_client(chosen_spec, server, llm) as model:
        record, issue = recorder(agent, file), about or instance()
        yield Task(issue, chosen_spec, box, record, model, instruction, fn_calling, temperature=temperature), server
    assert not server.errors


def observations(task: Task) -> list[Result]:
    """Return the results of the calls, in order."""
    return [result for turn in task.recorder.turns if turn.observation for result in turn.observation.results]


def agrees(task: Task, server: ModelServer, *, all_recorded: bool = True) -> None:
    """Check that recorder, client and server have counted the same; test requests of a client are not recorded."""
    usage, counts = task.recorder.usage, server.counts
    assert usage == task.model.usage
    assert (usage.requests, usage.calls) == (counts.requests, counts.calls)
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts.prompt_tokens, counts.completion_tokens)
    if not all_recorded:
        return
    recorded = [turn.metrics for turn in task.recorder.turns if turn.metrics is not None]
    assert sum(metrics.prompt_tokens or 0 for metrics in recorded) == usage.prompt_tokens
    assert len(recorded) == usage.calls


def reply(text: str = "", *calls: tuple[str, str], finish: str = "stop") -> Reply:
    """Return a model's answer with that text and calls (name, arguments)."""
    requested = tuple(RequestedCall(f"id-{n}", name, arguments) for n, (name, arguments) in enumerate(calls))
    message: Message = {"role": "assistant", "content": text or None}
    if requested:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in requested
        ]
    return Reply(text, Metrics(extra=MetricsExtra(finish_reason=finish)), message, calls=requested)
