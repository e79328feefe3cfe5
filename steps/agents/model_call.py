"""A single model call of an agent, recorded in the journal and counted against the limits whatever its result."""

from __future__ import annotations

from swe_argo.steps.agents.limits import Limits
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.models.reply import Message, NoReplyError, Reply, ToolDefinition


def ask(
    task: Task,
    limits: Limits,
    messages: list[Message],
    tools: list[ToolDefinition] | None,
    stop: list[str] | None = None,
) -> Reply | StopReason:
    """Return the answer, or the stop reason if there is none. Raises InfraError and ConfigError, as Model."""
    model, journal = task.model, task.journal
    try:
        reply = model.ask(messages, tools=tools, temperature=task.temperature, timeout_s=limits.left_s, stop=stop)
    except NoReplyError as error:
        journal.note = error.detail
        journal.set_usage(model.usage)
        if error.metrics is not None:
            journal.add_agent_turn("", [], metrics=error.metrics)
        limits.lost(model.lost_s)
        late = error.reason is StopReason.CALL_TIMEOUT and limits.out_of_time
        return StopReason.TIMEOUT if late else error.reason
    except BaseException:
        journal.set_usage(model.usage)  # count a failed call's usage however the process ends
        raise
    journal.usage = model.usage
    limits.lost(model.lost_s)
    return reply
